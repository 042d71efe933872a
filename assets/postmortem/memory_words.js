/**
 * Memory words: what the timeline says in text: its summary, legend, ticks and tooltip.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
  const FLAGS = { before: 1, atEnd: 2, uncertain: 4 };
  const TICKS = 5;

  const element = (id) => document.getElementById(id);
  const formatBytes = (bytes) => vramscope.mapWords.formatBytes(bytes);

  /** Return the ticks of an axis from 0 to `top` bytes as [bytes, text]. */
  function byteTicks(top) {
    const [unit, size] = UNITS.find(([, bytes]) => top >= bytes) || UNITS[UNITS.length - 1];
    const rough = top / size / TICKS;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
    const ticks = [];
    for (let value = 0; value * size <= top; value += step) ticks.push([value * size, value ? `${Number(value.toPrecision(6))} ${unit}` : "0"]);
    return ticks;
  }

  /** Return a time span in words. */
  function span(us) {
    if (us === null) return "–";
    for (const [unit, size] of [["h", 3.6e9], ["min", 6e7], ["s", 1e6], ["ms", 1e3]]) {
      if (us >= size) return `${(us / size).toFixed(us / size < 10 ? 2 : 1)} ${unit}`;
    }
    return `${Math.round(us)} µs`;
  }

  /** Return "forward (model.py:7)" for "forward (/home/user/model.py:7)", also at the end of a longer line. */
  const shortSite = (text) => text.replace(/\([^()]*\/([^()/]+)\)$/, "($1)");

  function summary(frame, leftOut) {
    const { visible, allocations, peak_in_view: peak, basis } = frame.header;
    const some = visible === allocations ? "" : `${visible.toLocaleString("en")} of `;
    const left = leftOut ? ` · ${leftOut.toLocaleString("en")} marks not drawn` : "";
    return `${some}${vramscope.mapWords.count(allocations, "allocation")} · highest ${formatBytes(peak.bytes)} (${basis})${left}`;
  }

  /** Show what the frame holds as words, its colours, and how many marks of its range are left out. */
  function show(frame, leftOut = 0) {
    const text = summary(frame, leftOut);
    element("memory-summary").textContent = text;
    element("memory-summary").title = text;
    element("memory-aloud").textContent = text;
    const entries = vramscope.memoryColours.legend(frame).map(([colour, name]) => {
      const span = vramscope.dom.make("span", name);
      if (colour) {
        const swatch = vramscope.dom.make("i", "", `swatch${colour === "rest" ? " rest" : ""}`);
        if (colour !== "rest") swatch.style.background = colour;
        span.prepend(swatch);
      }
      return span;
    });
    const known = frame.reserved.some((value) => !Number.isNaN(value));
    const lines = [["line-total", "total"], ...(known ? [["line-reserved", "reserved"]] : [])].map(([kind, name]) => {
      const span = vramscope.dom.make("span", name);
      span.prepend(vramscope.dom.make("i", "", `stroke ${kind}`));
      return span;
    });
    element("memory-legend").replaceChildren(...entries, ...lines);
  }

  /** Return the tooltip's lines about the k-th allocation of a frame. */
  function tip(frame, k) {
    const { axis, labels } = frame.header;
    const flags = frame.flags[k];
    const lived = frame.end[k] - frame.start[k];
    const least = flags & (FLAGS.before | FLAGS.atEnd) ? "at least " : "";
    const life = axis === "time" ? span(lived) : `${Math.round(lived).toLocaleString("en")} events`;
    const edges = [flags & FLAGS.before && "from before the trace", flags & FLAGS.atEnd && "still there at its end"].filter(Boolean);
    return [
      (flags & FLAGS.uncertain ? "at least " : "") + formatBytes(frame.bytes[k]),
      `lived ${least}${life}${edges.length ? `: ${edges.join(", ")}` : ""}`,
      labels[frame.colour[k]] || "",
    ].filter(Boolean);
  }

  vramscope.memoryWords = { show, tip, byteTicks, span, shortSite };
})();
