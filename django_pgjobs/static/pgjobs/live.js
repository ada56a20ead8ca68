// Keeps a page up to date without moving what one reads.
//
// The page is fetched again every few seconds (its own address, or the attribute
// data-pgjobs-source of #pgjobs-live) and what is in #pgjobs-live is swapped, but not while the
// tab is hidden, the focus or a press is inside, boxes are ticked, fields were filled in, text is
// selected, details were opened, or the pointer is on something to click. The switch and the
// note are in live.html. A fresh element with data-pgjobs-done ends it.
//
// A list does not jump: an element #pgjobs-new with data-pgjobs-source is given the text of the
// JSON {"text": "37 new jobs"} from there, and shown when there is one.
"use strict";
{
    const SECONDS = 5;
    const LONGEST_SECONDS = 60;
    const ANSWER_SECONDS = 15;
    const KEY = "pgjobs.live";
    const SCROLLS = ".pgjobs-scroll";
    const HEADERS = { "X-Requested-With": "pgjobs-live" };

    const stored = () => {
        try {
            return window.localStorage.getItem(KEY);
        } catch {
            return null;
        }
    };

    const store = (value) => {
        try {
            window.localStorage.setItem(KEY, value);
        } catch {
            // Without a storage the switch holds for this page.
        }
    };

    const isEdited = (field) =>
        field.type === "checkbox" || field.type === "radio"
            ? field.checked !== field.defaultChecked
            : field.type !== "hidden" && "defaultValue" in field && field.value !== field.defaultValue;

    // A click on a table that scrolls gives it the focus; nobody is about to do anything there.
    const hasFocus = (live) =>
        live.contains(document.activeElement) && !document.activeElement.matches(SCROLLS);

    const isBusy = (live) => {
        const selection = window.getSelection();
        const isSelecting =
            selection !== null && !selection.isCollapsed && selection.containsNode(live, true);
        return (
            isSelecting ||
            hasFocus(live) ||
            live.querySelector("details[open], dialog[open], :active, a:hover, button:hover, summary:hover, svg:hover") !== null ||
            document.querySelector("#changelist-form .action-select:checked") !== null ||
            [...live.querySelectorAll("input, textarea")].some(isEdited)
        );
    };

    const named = (live) => [...live.querySelectorAll("[id], [data-pgjobs-row]")];
    const nameOf = (element) => element.id || element.dataset.pgjobsRow;
    const topOf = (element) => element.getBoundingClientRect().top;

    // What begins first in the window, else what began last above it; a row is known by its name.
    const findAnchor = (live) => {
        const all = named(live);
        return all.find((element) => topOf(element) >= 0) || all[all.length - 1];
    };

    // What one reads stays where it is, whatever grows above it.
    const swap = (live, fresh) => {
        const anchor = findAnchor(live);
        const isBelow = topOf(live) < 0;
        const before = anchor && topOf(anchor);
        const boxes = [...live.querySelectorAll(SCROLLS)];
        const offsets = boxes.map((box) => box.scrollLeft);
        const focused = boxes.indexOf(document.activeElement);
        live.replaceChildren(...fresh.childNodes);
        live.querySelectorAll(SCROLLS).forEach((box, place) => {
            box.scrollLeft = offsets[place] || 0;
            if (place === focused) {
                box.focus({ preventScroll: true });
            }
        });
        const after = anchor && named(live).find((element) => nameOf(element) === nameOf(anchor));
        if (isBelow && after) {
            window.scrollBy(0, topOf(after) - before);
        }
    };

    class Ended extends Error {}

    const ask = async (address, headers) => {
        const response = await fetch(address, {
            headers: { ...HEADERS, ...headers },
            credentials: "same-origin",
            signal: AbortSignal.timeout(ANSWER_SECONDS * 1000),
        });
        if (response.redirected || [401, 403, 404].includes(response.status)) {
            throw new Ended();
        }
        if (!response.ok && response.status !== 304) {
            throw new Error(`status ${response.status}`);
        }
        return response;
    };

    // Calls work again and again, one after the other; it returns whether to go on. After an
    // error the pauses become longer.
    const repeat = (work, say) => {
        let seconds = SECONDS;
        let timer = null;
        let isWorking = false;
        let hasEnded = false;
        const turn = async () => {
            window.clearTimeout(timer);
            if (isWorking || hasEnded) {
                return;
            }
            isWorking = true;
            try {
                hasEnded = !(await work());
                seconds = SECONDS;
            } catch (error) {
                hasEnded = error instanceof Ended;
                seconds = Math.min(seconds * 2, LONGEST_SECONDS);
                say(hasEnded ? "pgjobsEnded" : "pgjobsFailed");
            }
            isWorking = false;
            if (!hasEnded) {
                timer = window.setTimeout(turn, seconds * 1000);
            }
        };
        timer = window.setTimeout(turn, seconds * 1000);
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden) {
                turn();
            }
        });
        return turn;
    };

    const refresh = (live, toggle, note) => {
        const say = (name) => {
            const text = (name && note && note.dataset[name]) || "";
            if (note && note.textContent !== text) {
                note.textContent = text;
            }
        };
        let etag = null;
        const work = async () => {
            if (!toggle.checked || document.hidden) {
                say("");
                return true;
            }
            if (isBusy(live)) {
                say("pgjobsPaused");
                return true;
            }
            const address = live.dataset.pgjobsSource || window.location.href;
            const response = await ask(address, etag ? { "If-None-Match": etag } : {});
            say("");
            if (response.status === 304) {
                return true;
            }
            const page = new DOMParser().parseFromString(await response.text(), "text/html");
            const fresh = page.getElementById("pgjobs-live");
            if (!fresh) {
                throw new Error("the answer has no element to show");
            }
            if (!toggle.checked || isBusy(live)) {
                return true;
            }
            swap(live, fresh);
            etag = response.headers.get("ETag");
            return !("pgjobsDone" in fresh.dataset);
        };
        toggle.checked = stored() !== "off";
        toggle.closest("[hidden]")?.removeAttribute("hidden");
        const turn = repeat(work, say);
        toggle.addEventListener("change", () => {
            store(toggle.checked ? "on" : "off");
            turn();
        });
    };

    const announce = (element) => {
        repeat(async () => {
            if (document.hidden || stored() === "off") {
                return true;
            }
            const response = await ask(element.dataset.pgjobsSource, { Accept: "application/json" });
            const { text } = await response.json();
            if (element.textContent !== text) {
                element.textContent = text;
            }
            element.hidden = !text;
            return true;
        }, () => {});
    };

    document.addEventListener("DOMContentLoaded", () => {
        const live = document.getElementById("pgjobs-live");
        const toggle = document.getElementById("pgjobs-live-toggle");
        if (live && toggle && !("pgjobsDone" in live.dataset)) {
            refresh(live, toggle, document.getElementById("pgjobs-live-note"));
        }
        const fresh = document.getElementById("pgjobs-new");
        if (fresh && fresh.dataset.pgjobsSource) {
            announce(fresh);
        }
    });
}
