// The buttons in the section "Background jobs" of a row's own page. They are inside the form of
// the row, so they send a request of their own: what was typed into the form stays.
"use strict";
{
    const ID = "pgjobs-of-row";

    const show = (root) => {
        for (const button of root.querySelectorAll("[data-pgjobs-post]")) {
            button.hidden = false;
        }
    };

    const post = async (button) => {
        const token = document.querySelector("[name=csrfmiddlewaretoken]");
        const next = window.location.pathname + window.location.search;
        const body = new URLSearchParams({ csrfmiddlewaretoken: token.value, next });
        const response = await fetch(button.dataset.pgjobsPost, {
            method: "POST",
            body,
            credentials: "same-origin",
        });
        if (!response.ok) {
            throw new Error(`status ${response.status}`);
        }
        return new DOMParser().parseFromString(await response.text(), "text/html");
    };

    document.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-pgjobs-post]");
        const section = button && button.closest(`#${ID}`);
        if (!section) {
            return;
        }
        button.disabled = true;
        const said = section.parentElement.querySelector("[role=status]");
        try {
            const page = await post(button);
            const fresh = page.getElementById(ID);
            if (!fresh) {
                throw new Error("the page has no jobs");
            }
            section.replaceChildren(...fresh.childNodes);
            show(section);
            said.textContent = page.querySelector(".messagelist")?.textContent.trim() ?? "";
        } catch {
            button.disabled = false;
            said.textContent = said.dataset.pgjobsFailed;
        }
    });
    document.addEventListener("DOMContentLoaded", () => show(document));
}
