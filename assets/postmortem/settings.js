/**
 * Settings: the allocator's settings and the environment as the file recorded them, what it lacks, and what was ignored in it.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});

  const element = (id) => document.getElementById(id);
  const words = (value) => (value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

  function section(title, entries, otherwise) {
    const { make } = vramscope.dom;
    if (!entries.length) return [make("h3", title), make("p", otherwise, "muted")];
    const rows = entries.flatMap(([name, value]) => [make("dt", name), make("dd", words(value))]);
    return [make("h3", title), make("dl", "", "", ...rows)];
  }

  function lines(title, found) {
    const { make } = vramscope.dom;
    return found.length ? [make("h3", title), make("ul", "", "", ...found.map((line) => make("li", line)))] : [];
  }

  /** Show what a file tells of itself, and of one device. */
  function show(snapshot, device) {
    const { formatBytes } = vramscope.mapWords;
    const size = (value) => (value === null || value === undefined ? "not known" : `${formatBytes(value)} (${value.toLocaleString("en")} B)`);
    const totals = ["reserved", "allocated", "active", "requested", "inactive_split", "peak_active", "peak_requested"];
    const figures = totals.map((name) => [name.replaceAll("_", " "), size(device[`${name}_bytes`])]);
    const counts = ["segments", "blocks", "events"].map((name) => [name, device[name].toLocaleString("en")]);
    const about = [["container", snapshot.container], ["PyTorch, guessed", snapshot.torch_version_guess], ["stacks", snapshot.stacks], ["annotations", snapshot.annotations]];
    element("settings").replaceChildren(
      ...section("Totals at the end", [...figures, ...counts], ""),
      ...section("The allocator's settings, as recorded", Object.entries(snapshot.settings || {}), "This file records none."),
      ...section("File", about.map(([name, value]) => [name, value === null ? "not known" : value]), ""),
      ...lines("What is missing", snapshot.missing || []),
      ...lines("Notes on this GPU", [device.contradiction, ...device.notes].filter(Boolean)),
      ...section("Ignored, by name", Object.entries(snapshot.ignored || {}), "Nothing."),
    );
  }

  vramscope.settings = { show };
})();
