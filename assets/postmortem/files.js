/**
 * Files: the list of files that may be opened – named on the command line, sent, or written by a job – and the pickers of file and rank.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const ORIGINS = { "command line": "named at the start", upload: "sent", job: "written by a job" };
  const MOST_BUTTONS = 8;

  let files = [];

  const element = (id) => document.getElementById(id);
  const setProps = (id, props) => window.dash_clientside.set_props(id, props);
  const find = (id) => files.find((found) => found.file === id);

  /** Fetch the list, and show it and the pickers. */
  async function load() {
    try {
      files = (await vramscope.server.json("files.json")).files;
    } catch (error) {
      vramscope.page.tell(error.message);
    }
    show();
  }

  function show() {
    const current = vramscope.place.now.file;
    setProps("file", { options: files.map((found) => ({ value: found.file, label: title(found) })), value: current && find(current) ? current : null });
    showRanks();
    const { make } = vramscope.dom;
    const items = files.map((found) => make("li", "", "", entry(found), make("span", about(found), "muted")));
    element("file-list").replaceChildren(...(items.length ? [make("h2", "Files known here"), make("ul", "", "file-list", ...items)] : []));
  }

  /** Return what a file is called: one that a job wrote by the job, since its name is made of numbers. */
  function title(found) {
    if (!found.job) return found.name;
    const at = new Date(found.time_unix_us / 1000).toLocaleTimeString("en-GB");
    return `${found.job_name || found.job} · rank ${found.rank} · ${at}`;
  }

  function entry(found) {
    const row = vramscope.dom.make("span", "", "", vramscope.dom.button(found.name, () => vramscope.page.openFile(found.file), "link"));
    if (found.origin !== "upload") return row;
    const remove = vramscope.dom.button("remove", async () => {
      await vramscope.server.send("DELETE", `files/${found.file}`).catch((error) => vramscope.page.tell(error.message));
      load();
    }, "link quiet");
    remove.title = "Remove the file from the server";
    row.append(remove);
    return row;
  }

  function about(found) {
    const job = found.job ? ` ${found.job_name || found.job}, rank ${found.rank}` : "";
    const when = new Date(found.time_unix_us / 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
    return `${vramscope.mapWords.formatBytes(found.bytes)} · ${ORIGINS[found.origin] || found.origin}${job} · ${when}`;
  }

  /** Return the newest file of each rank of the shown file's job. */
  function ranks() {
    const current = find(vramscope.place.now.file);
    if (!current || current.job === null) return [];
    const newest = new Map([[current.rank, current]]);
    for (const found of files) if (found.job === current.job && !newest.has(found.rank)) newest.set(found.rank, found);
    return [...newest.values()].sort((a, b) => a.rank - b.rank);
  }

  function showRanks() {
    const current = find(vramscope.place.now.file);
    picker("rank", ranks().map((found) => ({ value: found.file, label: String(found.rank) })), current ? current.file : null);
  }

  /** Fill a picker: hidden without a choice, a row of buttons, or a menu where there are many. */
  function picker(name, options, value) {
    const isMenu = options.length > MOST_BUTTONS;
    const [used, unused] = isMenu ? [`${name}-menu`, name] : [name, `${name}-menu`];
    setProps(unused, { options: [], value: null });
    setProps(used, { options, value });
    setProps(`${name}-picker`, { className: options.length < 2 ? "picker hidden" : isMenu ? "picker menu" : "picker" });
  }

  vramscope.files = { load, show, picker, find };
})();
