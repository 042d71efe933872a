/**
 * Opening: brings a file onto the page – from the list, dropped, or chosen – with its progress, the way to cancel it, and its one line of failure.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const FIRST_POLL_MS = 20; // a file that was opened before is there at once
  const MOST_POLL_MS = 160;
  const STAGES = { looking: "looking at the file", reading: "reading", building: "working out the timeline" };

  let running = null; // {controller, cancel}: what is under way

  const element = (id) => document.getElementById(id);

  function progress(name, stage, share) {
    element("opening").hidden = false;
    element("opening-error").hidden = true;
    element("opening-name").textContent = `${name} `;
    element("opening-stage").textContent = stage;
    element("opening-bar").firstChild.style.width = `${Math.round(100 * Math.min(1, share || 0))}%`;
  }

  function end() {
    running = null;
    element("opening").hidden = true;
  }

  /** Say in one line why a file is not there. */
  function fail(line) {
    end();
    element("opening-error").textContent = line;
    element("opening-error").hidden = false;
    vramscope.page.showOpener(true);
  }

  /** Do something that can be cancelled; what it throws becomes the line. */
  async function run(does, cancel) {
    if (running) await stop();
    const controller = new AbortController();
    running = { controller, cancel };
    vramscope.page.showOpener(true);
    try {
      return await does(controller.signal);
    } catch (error) {
      if (!vramscope.server.isAbort(error)) fail(error.message);
      return null;
    }
  }

  async function stop() {
    const { controller, cancel } = running;
    controller.abort();
    end();
    await cancel().catch(() => undefined);
  }

  /** Open a registered file and return its state once it is open; null where that failed or was cancelled. */
  function open(file) {
    const path = `files/${file}`;
    return run(async (signal) => {
      let state = await vramscope.server.send("POST", `${path}/open`, { signal });
      let wait = FIRST_POLL_MS;
      while (["waiting", "opening", "closed"].includes(state.state)) {
        const size = state.total ? ` · ${Math.round((100 * state.done) / state.total)} %` : "";
        const stage = state.state === "waiting" ? "waiting for another file" : `${STAGES[state.stage] || "opening"}${size}`;
        progress(state.name, stage, state.total ? state.done / state.total : 0);
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(2 * wait, MOST_POLL_MS);
        state = await vramscope.server.json(`${path}/state.json`, {}, signal);
      }
      end();
      if (state.state === "open") return state;
      if (state.state === "failed") fail(state.error);
      return null;
    }, () => vramscope.server.send("POST", `${path}/cancel`));
  }

  /** Send a file to the server, piece by piece, and return its id; null where that failed or was cancelled. */
  function upload(file) {
    let id = null;
    return run(async (signal) => {
      const told = { name: file.name, bytes: file.size };
      const begun = await vramscope.server.send("POST", "uploads", { body: told, signal });
      id = begun.upload;
      for (let sent = 0; sent < file.size; ) {
        progress(file.name, `sending · ${vramscope.mapWords.formatBytes(sent)} of ${vramscope.mapWords.formatBytes(file.size)}`, sent / file.size);
        const piece = file.slice(sent, sent + begun.chunk_bytes);
        sent = (await vramscope.server.send("PUT", `uploads/${id}`, { params: { offset: sent }, body: piece, signal })).received;
      }
      const finished = await vramscope.server.send("POST", `uploads/${id}/finish`, { signal });
      return finished.file;
    }, () => (id ? vramscope.server.send("DELETE", `uploads/${id}`) : Promise.resolve()));
  }

  /** Send a file and open it. */
  async function take(file) {
    const id = await upload(file);
    running = null;
    if (id) await vramscope.page.openFile(id);
  }

  function attach() {
    const input = vramscope.dom.make("input", "", "aloud");
    input.type = "file";
    input.id = "file-chosen";
    input.addEventListener("change", () => {
      if (input.files.length) take(input.files[0]);
      input.value = "";
    });
    element("file-input").replaceWith(input);
    element("opening-cancel").addEventListener("click", () => running && stop());
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      document.body.classList.add("dragging");
    });
    document.addEventListener("dragleave", (event) => !event.relatedTarget && document.body.classList.remove("dragging"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dragging");
      if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
    });
  }

  vramscope.opening = { attach, open };
})();
