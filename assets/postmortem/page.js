/**
 * Page: what leads where – a file's device, a moment, a selection – and the browser's half of dashboard/callbacks/postmortem.py.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});

  let state = null; // state.json of the open file
  let device = null;

  const element = (id) => document.getElementById(id);
  const setProps = (id, props) => window.dash_clientside.set_props(id, props);

  /** Tell about something that went wrong, where it is seen whatever is open. */
  function tell(line) {
    const target = device ? element("messages") : element("opening-error");
    if (device) target.replaceChildren(vramscope.dom.make("div", line, "banner bad"));
    else {
      target.textContent = line;
      target.hidden = false;
    }
  }

  /** Show or hide the part of the page that leads to files. */
  function showOpener(is) {
    element("opener").hidden = !is;
    element("picture").hidden = is;
    element("open-another").setAttribute("aria-expanded", String(is));
    element("open-another").textContent = is && device ? "Back" : "Open …";
  }

  // ---- file and device

  /** Open a file and show it; the place keeps what else it says only for the file it was read with. */
  async function openFile(file, keeps = false) {
    if (!keeps) vramscope.place.set({ ...Object.fromEntries(Object.keys(vramscope.place.now).map((name) => [name, null])), tab: vramscope.place.now.tab });
    vramscope.place.set({ file });
    const found = await vramscope.opening.open(file);
    vramscope.files.load(); // the list is nothing that the picture waits for
    if (!found || vramscope.place.now.file !== file) return;
    state = found;
    const devices = state.snapshot.devices;
    if (!devices.length) {
      device = null;
      tell(`${state.name} holds no GPU's memory: it was recorded before anything was allocated. Record it again while the job runs.`);
      return;
    }
    document.title = `${state.name} – vramscope`;
    const wished = devices.find((one) => one.device === vramscope.place.now.device);
    const most = devices.reduce((a, b) => (rank(b) > rank(a) ? b : a));
    await openDevice(wished || most, Boolean(wished));
  }

  // Where nothing was chosen, the device that ran out of memory comes first, then the one with a history, then the fullest.
  const rank = (one) => one.oom.length * 1e18 + (one.events ? 1e15 : 0) + one.reserved_bytes;

  async function openDevice(found, keeps) {
    device = found;
    if (!keeps) vramscope.place.set({ event: null, from: null, to: null, allocation: null, address: null });
    vramscope.place.set({ device: device.device });
    showOpener(false);
    element("picture").dataset.file = state.file;
    vramscope.files.picker("gpu", state.snapshot.devices.map((one) => ({ value: one.device, label: String(one.device) })), device.device);
    const memory = (bytes) => vramscope.mapWords.formatBytes(bytes);
    element("footer").textContent = `${state.name} · GPU ${device.device} · ${memory(device.reserved_bytes)} reserved at the end · ${device.blocks.toLocaleString("en")} blocks`;
    element("picture").dataset.moments = device.moments;
    element("tab-none").textContent = device.moments === "none" ? "Not shown, because the file contradicts itself." : "";
    vramscope.settings.show(state.snapshot, device);
    const selected = { allocation: vramscope.place.now.allocation, address: vramscope.place.now.address };
    vramscope.moment.open(device);
    await openTimeline(); // the first picture shares the server with nothing else
    if (device !== found) return;
    const findings = vramscope.findings.load(device).catch((error) => tell(error.message));
    const isTold = device.moments !== "none";
    if (isTold) await vramscope.moment.go(vramscope.place.now.event ?? firstEvent());
    vramscope.tables.open(isTold);
    await findings;
    if (selected.allocation !== null || selected.address !== null) await vramscope.details.show(selected);
    else await vramscope.details.show({ allocation: null, address: null });
  }

  /** Return the moment to begin with: the out-of-memory, else the peak, else the end. */
  function firstEvent() {
    if (device.oom.length) return device.oom[0].event;
    return device.peak ? device.peak.event : device.events - 1;
  }

  /** Show the timeline, or why there is none; returns when it has its picture. */
  async function openTimeline() {
    const has = Boolean(device.axes.step || device.axes.time) && device.events > 0;
    for (const id of ["memory", "memory-key", "memory-overview"]) element(id).hidden = !has;
    element("memory-none").hidden = has;
    for (const id of ["show-whole", "to-peak", "memory-export"]) element(id).disabled = !has;
    if (!has) {
      vramscope.findings.noTimeline(device);
      vramscope.memoryTimeline.open(null, options());
      return;
    }
    vramscope.findings.messages(device);
    const axis = device.axes[options().axis] ? options().axis : "step";
    setProps("memory-axis", {
      value: axis,
      options: [{ value: "time", label: "Time", disabled: !device.axes.time }, { value: "step", label: "Events" }],
    });
    setProps("memory-colour", { value: options().colour });
    await vramscope.memoryTimeline.open(device, { ...options(), axis });
  }

  const options = () => ({ axis: vramscope.place.now.axis || "time", colour: vramscope.place.now.colour || "category" });

  // ---- moment and selection

  /** Go to an event, and let the timeline follow. */
  async function jump(event) {
    await vramscope.moment.go(event);
    revealCursor();
  }

  function revealCursor() {
    const { cursor } = vramscope.memoryTimeline.state();
    if (cursor !== null) vramscope.memoryTimeline.reveal(cursor);
  }

  /** The map shows another moment: cursor, marks on the map and tables follow. */
  function moved({ event, time_unix_us: time }) {
    const { axis, device: shown } = vramscope.memoryTimeline.state();
    if (shown) vramscope.memoryTimeline.setCursor(axis === "step" ? event : event < 0 || time === null ? shown.axes.time[0] : time);
    vramscope.tables.moved();
  }

  /** Something on the timeline was clicked: go there, and select the allocation; both null: select nothing. */
  async function pick(at, allocation) {
    if (at !== null) {
      const { axis } = vramscope.memoryTimeline.state();
      const near = await vramscope.server.json(vramscope.place.route("near.json"), { axis, at }).catch((error) => tell(error.message));
      if (near) await vramscope.moment.go(near.event);
    }
    await vramscope.details.show({ allocation, address: null });
  }

  /** An allocation or block is selected, or none: let it stand out in both pictures. */
  function selected(found) {
    vramscope.segmentMap.mark(found && isThere(found) ? found.address : null);
    const { axis, device: shown } = vramscope.memoryTimeline.state();
    if (!shown) return;
    if (!found || found.allocation === null || found.allocation === undefined) {
      vramscope.memoryTimeline.select(null);
      return;
    }
    const [begin, end] = shown.axes[axis];
    const [from, to] = axis === "step" ? [found.first_event, found.last_event] : [found.first_time_us, found.last_time_us];
    vramscope.memoryTimeline.select({ allocation: found.allocation, from: from ?? begin, to: to ?? end });
  }

  const isThere = ({ first_event: first, last_event: last }) => {
    const event = vramscope.moment.event();
    return (first ?? -1) <= event && (last === null || last === undefined || event < last);
  };

  // What the segment map asks of the page it is on.
  function selectBlock(address) {
    vramscope.details.show({ allocation: null, address });
  }

  async function describeBlock(address) {
    const found = await vramscope.server.json(vramscope.place.route("block.json"), { event: vramscope.moment.event(), address }).catch(() => null);
    return found && !found.free && found.category ? { owner: found.category, name: found.site || "no stack", shape: "" } : null;
  }

  function copyLink() {
    const button = element("copy-link");
    navigator.clipboard.writeText(vramscope.place.link()).then(() => (button.textContent = "Copied"), () => (button.textContent = "See the address bar"));
    setTimeout(() => (button.textContent = "Copy link"), 1500);
  }

  // ---- start

  function attach() {
    for (const part of ["opening", "moment", "memoryInput", "memoryOverview", "search", "segmentMap", "memoryTimeline"]) vramscope[part].attach();
    const clicks = {
      "open-another": () => showOpener(element("opener").hidden || !device),
      "copy-link": copyLink,
      "show-whole": () => vramscope.memoryTimeline.showWhole(),
      "to-peak": () => device && device.peak && jump(device.peak.event),
      "to-oom": () => vramscope.findings.event() !== null && jump(vramscope.findings.event()),
      "oom-show": () => jump(vramscope.findings.event()),
      "memory-export": () => vramscope.memoryTimeline.exportPng(title()),
    };
    for (const [id, does] of Object.entries(clicks)) element(id).addEventListener("click", does);
    vramscope.theme.onChange(() => {
      vramscope.segmentMap.repaint();
      vramscope.memoryTimeline.axes();
      vramscope.memoryTimeline.draw();
      vramscope.stacks.draw();
    });
  }

  const title = () => `${state.name} · GPU ${device.device}`;

  async function start() {
    if (!element("opener") || !element("memory")) {
      setTimeout(start, 30);
      return;
    }
    attach();
    const { file, tab } = vramscope.place.read();
    if (tab) setProps("tab", { value: tab });
    if (file) await openFile(file, true);
    else await vramscope.files.load();
  }

  vramscope.page = { tell, showOpener, openFile, jump, revealCursor, moved, pick, selected, selectBlock, describeBlock,
    hasEvents: () => device.events > 0 };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    postmortem: {
      theme: (value) => vramscope.theme.show(value),
      pickFile: (file) => (file && file !== vramscope.place.now.file ? void openFile(file) : undefined),
      pickRank: (row, menu) => ((row || menu) && (row || menu) !== vramscope.place.now.file ? void openFile(row || menu) : undefined),
      pickDevice(row, menu) {
        const found = device && state.snapshot.devices.find((one) => one.device === (row ?? menu));
        if (found && found !== device) openDevice(found, false);
      },
      pickOom: (n) => (vramscope.findings.pick(n) ? void jump(vramscope.findings.event()) : undefined),
      timelineOptions(axis, colour) {
        const shown = vramscope.memoryTimeline.state();
        if (!shown.device) return;
        if (colour !== options().colour) {
          vramscope.place.set({ colour });
          vramscope.memoryTimeline.setColour(colour);
        }
        if (axis === shown.axis || !device.axes[axis]) return;
        vramscope.place.set({ axis, from: null, to: null });
        vramscope.memoryTimeline.open(device, { ...options(), axis });
        vramscope.moment.go(vramscope.moment.event());
        vramscope.details.show({ allocation: vramscope.place.now.allocation, address: vramscope.place.now.address });
      },
      mapOptions(colour, sort, pool, shown) {
        vramscope.segmentMap.setOptions(colour, shown);
        vramscope.moment.setOptions(sort, pool);
      },
      exportMap: (clicks) => (clicks ? vramscope.segmentMap.exportPng(`${title()} · event ${vramscope.moment.event()}`) : undefined),
      showTab: (name) => vramscope.tables.show(name),
      stacksOptions: (at, text) => vramscope.stacks.setOptions(at, text),
      rowsText: (text) => vramscope.tables.setText(text),
      rows: (request, grid) => vramscope.tables.rows(request, grid),
      pickRow: (rows) => vramscope.tables.pick(rows),
    },
  });
  document.addEventListener("DOMContentLoaded", start);
})();
