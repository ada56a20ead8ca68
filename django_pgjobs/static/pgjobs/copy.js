// Buttons that copy the text of another element: <button hidden data-pgjobs-copy="#id">.
"use strict";
{
    const textOf = (source) => {
        if ("value" in source) {
            return source.value;
        }
        return (source.querySelector("pre") ?? source).textContent;
    };

    // navigator.clipboard is there on HTTPS only.
    const copyBySelection = (text) => {
        const area = document.createElement("textarea");
        area.value = text;
        area.className = "pgjobs-offscreen";
        area.setAttribute("aria-hidden", "true");
        document.body.append(area);
        area.select();
        const isCopied = document.execCommand("copy");
        area.remove();
        return isCopied;
    };

    const copy = async (text) => {
        try {
            await navigator.clipboard.writeText(text);
            return true;
        } catch {
            return copyBySelection(text);
        }
    };

    const show = () => {
        for (const button of document.querySelectorAll("[data-pgjobs-copy][hidden]")) {
            button.hidden = false;
        }
    };

    document.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-pgjobs-copy]");
        const source = button && document.querySelector(button.dataset.pgjobsCopy);
        if (!source) {
            return;
        }
        const isCopied = await copy(textOf(source));
        button.focus();
        if (isCopied && button.dataset.pgjobsCopied) {
            const label = button.dataset.pgjobsLabel ?? button.textContent;
            button.dataset.pgjobsLabel = label;
            button.textContent = button.dataset.pgjobsCopied;
            window.setTimeout(() => {
                button.textContent = label;
            }, 2000);
        }
    });
    document.addEventListener("DOMContentLoaded", () => {
        show();
        const live = document.getElementById("pgjobs-live");
        if (live) {
            new MutationObserver(show).observe(live, { childList: true });
        }
    });
}
