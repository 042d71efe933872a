/**
 * Details: the selected allocation or free block: its facts, its stack, its neighbours, and the ways to its begin and end.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const MOST_FRAMES = 40;

  let asked = null;

  const element = (id) => document.getElementById(id);
  const bytes = (value) => (value === null || value === undefined ? "–" : `${vramscope.mapWords.formatBytes(value)} (${value.toLocaleString("en")} B)`);

  /** Fetch what is known of an allocation at the cursor's event. */
  const about = (allocation, signal) =>
    vramscope.server.json(vramscope.place.route("allocation.json"), { allocation, event: vramscope.moment.event() }, signal);

  /** Show an allocation by its number, or the block at an address; both null: nothing is selected. */
  async function show({ allocation, address }) {
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    vramscope.place.set({ allocation, address: allocation === null ? address : null });
    if (allocation === null && address === null) {
      clear();
      return;
    }
    try {
      const at = { event: vramscope.moment.event(), address };
      const found = allocation !== null ? await about(allocation, mine.signal) : await vramscope.server.json(vramscope.place.route("block.json"), at, mine.signal);
      if (mine.signal.aborted) return;
      if (found.allocation !== null && found.allocation !== undefined) vramscope.place.set({ allocation: found.allocation, address: null });
      fill(found);
    } catch (error) {
      if (!vramscope.server.isAbort(error)) vramscope.page.tell(error.message);
    }
  }

  function clear() {
    const hint = "Click a band of the timeline, a block of the map, or a row of a table.";
    element("details").replaceChildren(vramscope.dom.make("p", hint, "muted"));
    element("details-badge").textContent = "";
    element("details-stack").replaceChildren();
    vramscope.page.selected(null);
  }

  function fill(found) {
    const { make } = vramscope.dom;
    if (!found.address) {
      clear();
      element("details").replaceChildren(make("p", "There is no block at this address at this moment.", "muted"));
      return;
    }
    element("details-badge").textContent = found.free ? "free" : found.category;
    element("details").replaceChildren(make("dl", "", "", ...(found.free ? freeRows(found) : rows(found)).flatMap(pair)));
    element("details-stack").replaceChildren(...(found.free ? [] : [stack(found)]));
    vramscope.page.selected(found);
  }

  const pair = ([name, value]) => {
    const shown = vramscope.dom.make("dd");
    shown.append(...[value].flat());
    return [vramscope.dom.make("dt", name), shown];
  };

  function freeRows(found) {
    return [
      ["Size", bytes(found.bytes) + (found.uncertain ? ", its end is not certain" : "")],
      ["Address", found.address],
      ["Place", `${found.pool} pool, stream ${found.stream}, segment ${found.segment}`],
    ];
  }

  function rows(found) {
    const first = jump("begin", found.first_event);
    const last = jump("end", found.last_event);
    return [
      ["Size", (found.is_exact ? "" : "at least ") + bytes(found.bytes)],
      ["Requested", bytes(found.requested_bytes)],
      ["Lifetime", [`${found.lifetime}${found.lifetime_us === null ? "" : ` · ${vramscope.memoryWords.span(found.lifetime_us)}`} `, vramscope.dom.make("span", "", "ways", ...first, ...last)]],
      ["Address", found.address],
      ["Place", [found.pool && `${found.pool} pool`, `stream ${found.stream}`, found.segment && `segment ${found.segment}`].filter(Boolean).join(", ")],
      ["Owner", `${found.category}, an estimate: ${found.rule}`],
      ["Before it", neighbour(found.before)],
      ["Behind it", neighbour(found.behind)],
    ];
  }

  const jump = (name, event) => (event === null ? [] : [vramscope.dom.button(name, () => vramscope.page.jump(event))]);

  function neighbour(found) {
    if (!found) return "–";
    const text = `${vramscope.mapWords.formatBytes(found.bytes)} ${found.state.replaceAll("_", " ")}`;
    return [vramscope.dom.button(text, () => show({ allocation: found.allocation ?? null, address: found.address }), "link")];
  }

  function frame([file, line, name]) {
    const { make } = vramscope.dom;
    const shown = make("div", "", "", make("span", `${file.split("/").slice(-2).join("/")}:${line} `, "muted"), make("b", name));
    shown.title = file;
    return shown;
  }

  function stack({ frames }) {
    const { make } = vramscope.dom;
    if (!frames || !frames.length) return make("p", "No stack was recorded for this allocation.", "muted stack-reason");
    // PyTorch's own C++ frames come first where they were recorded, and tell the least.
    const python = frames.findIndex(([file]) => file.endsWith(".py"));
    const inner = python > 1 ? frames.slice(0, python) : [];
    const outer = frames.slice(inner.length);
    const lines = outer.slice(0, MOST_FRAMES).map(frame);
    if (outer.length > MOST_FRAMES) lines.push(make("div", `+ ${outer.length - MOST_FRAMES} frames`, "muted"));
    if (inner.length) lines.unshift(make("details", "", "", make("summary", `${inner.length} frames of C++`), ...inner.map(frame)));
    const host = make("div", "", "stack", ...lines);
    host.tabIndex = 0;
    host.setAttribute("aria-label", "Stack of the allocation, innermost first");
    return host;
  }

  vramscope.details = { show, about };
})();
