// Draws anew when a schedule would be due, while its form is filled in: the server is asked with
// what says when, some time after the last change, and its answer replaces #pgjobs-preview's text.
"use strict";
{
    const PAUSE_SECONDS = 0.4;
    const ANSWER_SECONDS = 10;
    const NAMES = [
        "cron", "every", "timezone", "skipped_time", "repeated_time", "except_dates",
        "starts_at_0", "starts_at_1", "ends_at_0", "ends_at_1",
    ];

    const ask = async (box, form) => {
        const query = new URLSearchParams();
        for (const name of NAMES) {
            const field = form.elements.namedItem(name);
            if (field) {
                query.set(name, field.value);
            }
        }
        const response = await fetch(`${box.dataset.pgjobsSource}?${query}`, {
            headers: { "X-Requested-With": "pgjobs-preview" },
            credentials: "same-origin",
            signal: AbortSignal.timeout(ANSWER_SECONDS * 1000),
        });
        if (!response.ok || response.redirected) {
            throw new Error(`status ${response.status}`);
        }
        return new DOMParser().parseFromString(await response.text(), "text/html").body;
    };

    document.addEventListener("DOMContentLoaded", () => {
        const box = document.getElementById("pgjobs-preview");
        const form = box && box.closest("form");
        if (!form) {
            return;
        }
        let timer = null;
        let newest = 0;
        const draw = async () => {
            const number = ++newest;
            try {
                const body = await ask(box, form);
                if (number === newest) {
                    box.replaceChildren(...body.childNodes);
                }
            } catch {
                // What is there is not of these fields any more.
                if (number === newest) {
                    box.replaceChildren();
                }
            }
        };
        const later = (event) => {
            if (NAMES.includes(event.target.name)) {
                window.clearTimeout(timer);
                timer = window.setTimeout(draw, PAUSE_SECONDS * 1000);
            }
        };
        if (form.querySelector(".errorlist")) {
            // It came back with what was typed, and the server drew what the row says.
            draw();
        }
        form.addEventListener("input", later);
        form.addEventListener("change", later);
    });
}
