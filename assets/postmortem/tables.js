/**
 * Tables: the tabs – stacks, rows that the grid fetches from the server as it scrolls, settings – and what a chosen row leads to.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const AFTER_MS = 250;
  const AT_EVENT = ["sites", "segments"];
  const TABLES = ["allocations", "sites", "events", "segments"];
  const NOTHING = { rowData: [], rowCount: 0 };

  let tab = "stacks";
  let text = "";
  let timer = null;
  let isOpen = false;

  const element = (id) => document.getElementById(id);
  const stale = new Set(); // tables whose rows are of another moment, device or text

  /** Answer what a grid asks for. */
  async function rows(request, grid) {
    const table = grid.replace("-grid", "");
    if (!request || !isOpen || tab !== table) {
      stale.add(table);
      return NOTHING;
    }
    const sorted = (request.sortModel || [])[0];
    const params = { table, first: request.startRow, last: request.endRow, text, event: AT_EVENT.includes(table) ? vramscope.moment.event() : null };
    if (sorted) Object.assign(params, { sort: sorted.colId, order: sorted.sort });
    try {
      const found = await vramscope.server.json(vramscope.place.route("rows.json"), params);
      const note = AT_EVENT.includes(table) ? " at the cursor" : "";
      element("rows-note").textContent = `${found.total.toLocaleString("en")} ${table}${note}`;
      return { rowData: found.rows, rowCount: found.total };
    } catch (error) {
      element("rows-note").textContent = error.message;
      return NOTHING;
    }
  }

  /** Let the table that shows fetch its rows anew. */
  function refresh() {
    if (!TABLES.includes(tab)) return;
    stale.delete(tab);
    const grid = window.dash_ag_grid && window.dash_ag_grid.getApi(`${tab}-grid`);
    if (grid) grid.purgeInfiniteCache();
  }

  /** Show a tab. */
  function show(name) {
    tab = name;
    for (const other of ["stacks", ...TABLES]) element(`${other}-panel`).hidden = !isOpen || other !== name;
    element("settings").hidden = name !== "settings";
    element("rows-note").parentElement.hidden = !isOpen || !TABLES.includes(name);
    element("tab-none").hidden = isOpen || name === "settings";
    if (!isOpen) return;
    vramscope.place.set({ tab: name });
    if (name === "stacks") vramscope.stacks.load();
    else if (stale.has(name)) setTimeout(refresh); // once the grid has a size
  }

  /** The cursor moved: what tells about the moment follows once it rests. */
  function moved() {
    for (const table of AT_EVENT) stale.add(table);
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (tab === "stacks") vramscope.stacks.follow();
      else if (stale.has(tab)) refresh();
    }, AFTER_MS);
  }

  /** The timeline shows another range. */
  function ranged() {
    if (isOpen && tab === "stacks") vramscope.stacks.follow();
  }

  /** Another device is shown; `is`: whether it can be told what lay in its memory. */
  function open(is) {
    isOpen = is;
    for (const table of TABLES) stale.add(table);
    show(tab);
  }

  function setText(value) {
    if ((value || "") === text) return;
    text = value || "";
    for (const table of TABLES) stale.add(table);
    refresh();
  }

  /** A row was chosen: select its allocation, go to its event, or show its segment. */
  function pick(chosen) {
    const row = chosen && chosen[0];
    if (!row || !isOpen) return;
    if (tab === "events") vramscope.page.jump(row.event);
    if (row.allocation !== null && row.allocation !== undefined) vramscope.details.show({ allocation: row.allocation, address: null });
    else if (tab === "segments") vramscope.details.show({ allocation: null, address: row.address });
    else if (tab === "sites") {
      window.dash_clientside.set_props("rows-text", { value: row.site });
      window.dash_clientside.set_props("tab", { value: "allocations" });
    }
  }

  vramscope.tables = { rows, show, moved, ranged, open, setText, pick };
  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
    vramscopeSite: (value) => vramscope.memoryWords.shortSite(value || ""), // its folders are in the tooltip
    vramscopeBytes: (value) => (value === null || value === undefined ? "–" : vramscope.mapWords.formatBytes(value)),
  });
})();
