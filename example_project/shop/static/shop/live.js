"use strict";
// Fetch the page again each second and swap its #live part, for as long as that part says
// that it waits for a job. Only that part: a form somebody is filling in stays as it is.
const refresh = async () => {
    const live = document.getElementById("live");
    if (!live || !live.hasAttribute("data-waiting")) return;
    if (!document.hidden) {
        try {
            const page = await (await fetch(location.href)).text();
            const fresh = new DOMParser().parseFromString(page, "text/html").getElementById("live");
            if (fresh) live.replaceWith(fresh);
        } catch {
            // The server is away; the next round may find it.
        }
    }
    setTimeout(refresh, 1000);
};
setTimeout(refresh, 1000);
