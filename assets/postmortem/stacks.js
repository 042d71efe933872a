/**
 * Stacks: the icicle of bytes by stack – at the cursor, at the peak, or allocated over the range in view.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const OWNERS = 11;
  const CHARACTER_PX = 6.2;
  const DARK_BELOW = 130; // of 255: white text is easier to read from there on

  let at = "event";
  let text = "";
  let asked = null;
  let figure = null;
  let shownFor = "";

  const element = (id) => document.getElementById(id);

  function params() {
    const { frame } = vramscope.memoryTimeline.state();
    if (at === "event") return { at, text, event: vramscope.moment.event() };
    if (at === "peak" || !frame) return { at, text };
    return { at, text, from: frame.header.first_event, to: frame.header.last_event };
  }

  /** Fetch and show the figure, unless it is the one that shows. */
  async function load() {
    const wanted = params();
    const key = JSON.stringify([vramscope.place.now.file, vramscope.place.now.device, wanted]);
    if (key === shownFor) return;
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    try {
      const found = await vramscope.server.json(vramscope.place.route("stacks.json"), wanted, mine.signal);
      if (mine.signal.aborted) return;
      shownFor = key;
      figure = found.figure;
      const { count, formatBytes } = vramscope.mapWords;
      const of = text ? ` of ${formatBytes(found.bytes)}` : "";
      const most = found.left_out_nodes ? ` · ${found.left_out_nodes.toLocaleString("en")} small ones summed up` : "";
      element("stacks-note").textContent = `${formatBytes(found.shown)}${of} in ${count(found.blocks, "allocation")}, ${vramscope.page.hasEvents() ? found.what : "as the file was written"}${most}`;
      draw();
    } catch (error) {
      if (!vramscope.server.isAbort(error)) element("stacks-note").textContent = error.message;
    }
  }

  /** Return the labels cut to what fits into each node; the whole text is in what the pointer tells. */
  function fitting({ labels, values }, widthPx) {
    return labels.map((label, n) => {
      const room = Math.floor(((values[n] / Math.max(1, values[0])) * widthPx) / CHARACTER_PX) - 1;
      return label.length <= room ? label : room < 4 ? "" : `${label.slice(0, room - 1)}…`;
    });
  }

  /** Return each node's colour, which is that of the outermost frame it is below, and that of the text that can be read on it. */
  function colours({ ids }) {
    const theme = vramscope.theme;
    const way = Array.from({ length: OWNERS - 1 }, (_, n) => theme.colour(`--o-${n + 1}`));
    const fills = ids.map((id) => (id === "all" ? theme.colour("--panel") : way[Number(id.split("/")[1]) % way.length]));
    return { fills, texts: fills.map((fill, n) => (ids[n] === "all" ? theme.colour("--text") : isDark(fill) ? "#ffffff" : "#10151c")) };
  }

  function isDark(colour) {
    const [red, green, blue] = colour.match(/\d+/g).map(Number);
    return 0.299 * red + 0.587 * green + 0.114 * blue < DARK_BELOW;
  }

  /** Draw the figure with the page's colours. */
  function draw() {
    const plotted = document.querySelector("#stacks-graph .js-plotly-plot");
    if (!figure || !plotted || !window.Plotly) return;
    const theme = vramscope.theme;
    const data = figure.data.map((icicle) => {
      const { fills, texts } = colours(icicle);
      const marker = { colors: fills, line: { color: theme.colour("--panel"), width: 1 } };
      return { ...icicle, labels: fitting(icicle, plotted.clientWidth), marker, leaf: { opacity: 1 }, textfont: { color: texts } };
    });
    window.Plotly.react(plotted, data, {
      ...figure.layout,
      margin: { l: 4, r: 4, t: 4, b: 4 },
      uniformtext: { minsize: 9, mode: "hide" },
      paper_bgcolor: "rgba(0,0,0,0)",
      font: { color: theme.colour("--text"), size: 11 },
      uirevision: "stacks",
    });
  }

  /** The cursor or the range in view moved. */
  const follow = () => (at === "peak" || vramscope.moment.event() === null ? undefined : load());

  function setOptions(wanted, filter) {
    at = wanted;
    text = filter || "";
    if (vramscope.moment.event() !== null) load();
  }

  vramscope.stacks = { load, draw, follow, setOptions };
})();
