// Keeps a page up to date without moving what one reads.
//
// The page is fetched again every few seconds (its own address, or the attribute
// data-pgjobs-source of #pgjobs-live) and what is in #pgjobs-live is swapped, but not while the
// tab is hidden, the focus or a press is inside, boxes are ticked, fields were filled in or text is
// selected. Details that were opened stay open, and what the pointer rests on stays under it: a
// page on which it cannot is not shown. The switch and the note are in live.html. A fresh element
// with data-pgjobs-done ends it. One with data-pgjobs-unfinished has no switch: the rest of it is
// fetched at once.
//
// A list does not jump: an element #pgjobs-new with data-pgjobs-source is given the text of the
// JSON {"text": "37 new jobs"} from there, and shown when there is one.
//
// Where tabs scroll, the current one is brought into sight.
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

    // A click on a table that scrolls, or on the head of details, gives it the focus; nobody is
    // about to do anything there.
    const hasFocus = (live) =>
        live.contains(document.activeElement) &&
        !document.activeElement.matches(`${SCROLLS}, summary`);

    const isBusy = (live) => {
        const selection = window.getSelection();
        const isSelecting =
            selection !== null && !selection.isCollapsed && selection.containsNode(live, true);
        return (
            isSelecting ||
            hasFocus(live) ||
            live.querySelector("dialog[open], :active") !== null ||
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

    // Elements by what they stand for; of several that stand for the same, by their order.
    const byName = (elements, name) => {
        const found = new Map();
        const counts = new Map();
        for (const element of elements) {
            const text = name(element);
            const number = (counts.get(text) || 0) + 1;
            counts.set(text, number);
            found.set(`${number} ${text}`, element);
        }
        return found;
    };

    const headOf = (details) => details.querySelector("summary")?.textContent.trim() ?? "";

    // Details are known by their heads and those of the details around them.
    const detailsIn = (live) =>
        byName(live.querySelectorAll("details"), (details) => {
            const heads = [];
            for (let each = details; each; each = each.parentElement.closest("details")) {
                heads.push(headOf(each));
            }
            return heads.join("\n");
        });

    // What a click does: where a link leads, what a form sends, which details open.
    const effectOf = (element) => {
        if (element.form) {
            const sent = new FormData(element.form);
            sent.delete("csrfmiddlewaretoken");
            const action = element.form.getAttribute("action");
            return [action, element.name, element.value, new URLSearchParams(sent)].join("\n");
        }
        return element.getAttribute("href") || `${element.tagName} ${element.textContent.trim()}`;
    };
    const CLICKED = "a, button, summary";
    const clickedIn = (live) => byName(live.querySelectorAll(CLICKED), effectOf);
    const nameIn = (found, element) => [...found].find(([, each]) => each === element)?.[0];

    let pointer = null;
    document.addEventListener("pointermove", (event) => {
        pointer = [event.clientX, event.clientY];
    });

    // Brings what does the same as `hovered` did to its place; returns whether a click still does
    // that, or nothing at all.
    const keepUnderPointer = (live, name, place) => {
        const same = clickedIn(live).get(name);
        if (same) {
            const { left, top } = same.getBoundingClientRect();
            window.scrollBy(left - place.left, top - place.top);
        }
        const under = document.elementFromPoint(...pointer)?.closest(`${CLICKED}, input, select`);
        return !under || under === same;
    };

    const copyState = (live, fresh) => {
        const old = detailsIn(live);
        for (const [name, details] of detailsIn(fresh)) {
            details.open = old.has(name) ? old.get(name).open : details.open;
        }
    };

    // What one reads stays where it is, whatever grows above it. Returns whether it was shown.
    const swap = (live, fresh) => {
        const hovered = pointer && live.querySelector("a:hover, button:hover, summary:hover");
        const hoveredName = hovered && nameIn(clickedIn(live), hovered);
        const place = hovered && hovered.getBoundingClientRect();
        const anchor = findAnchor(live);
        const isBelow = topOf(live) < 0;
        const before = anchor && topOf(anchor);
        const scroll = [window.scrollX, window.scrollY];
        const boxes = [...live.querySelectorAll(SCROLLS)];
        const offsets = boxes.map((box) => box.scrollLeft);
        const focused = boxes.indexOf(document.activeElement);
        const heads = detailsIn(live);
        const focusedHead = nameIn(heads, document.activeElement.closest("details"));
        const isOnHead = document.activeElement.matches("summary") && focusedHead;
        copyState(live, fresh);
        const old = [...live.childNodes];
        const show = (nodes) => {
            live.replaceChildren(...nodes);
            live.querySelectorAll(SCROLLS).forEach((box, number) => {
                box.scrollLeft = offsets[number] || 0;
                if (number === focused) {
                    box.focus({ preventScroll: true });
                }
            });
            if (isOnHead) {
                const details = detailsIn(live).get(focusedHead);
                details?.querySelector("summary").focus({ preventScroll: true });
            }
        };
        show(fresh.childNodes);
        if (hovered) {
            if (!keepUnderPointer(live, hoveredName, place)) {
                show(old);
                window.scrollTo(...scroll);
                return false;
            }
            return true;
        }
        const after = anchor && named(live).find((element) => nameOf(element) === nameOf(anchor));
        if (isBelow && after) {
            window.scrollBy(0, topOf(after) - before);
        }
        return true;
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
        const isOn = () => !toggle || toggle.checked;
        const work = async () => {
            if (!isOn() || document.hidden) {
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
            if (!isOn() || isBusy(live)) {
                return true;
            }
            if (!swap(live, fresh)) {
                say("pgjobsPaused");
                return true;
            }
            etag = response.headers.get("ETag");
            return !("pgjobsDone" in fresh.dataset);
        };
        const turn = repeat(work, say);
        if (!toggle) {
            turn();
            return;
        }
        toggle.checked = stored() !== "off";
        toggle.closest("[hidden]")?.removeAttribute("hidden");
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

    const showCurrent = (link) => {
        const list = link.closest("ul");
        const [inner, outer] = [link.getBoundingClientRect(), list.getBoundingClientRect()];
        list.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
    };

    document.addEventListener("DOMContentLoaded", () => {
        const current = ":is(.pgjobs-nav, .pgjobs-tabs) [aria-current]";
        document.querySelectorAll(current).forEach(showCurrent);
        const live = document.getElementById("pgjobs-live");
        const toggle = document.getElementById("pgjobs-live-toggle");
        const isUnfinished = live && "pgjobsUnfinished" in live.dataset;
        if (live && (toggle || isUnfinished) && !("pgjobsDone" in live.dataset)) {
            refresh(live, toggle, document.getElementById("pgjobs-live-note"));
        }
        const fresh = document.getElementById("pgjobs-new");
        if (fresh && fresh.dataset.pgjobsSource) {
            announce(fresh);
        }
    });
}
