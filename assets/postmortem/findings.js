/**
 * Findings: what stands over the pictures: the out-of-memory with its verdict, and what the file does not tell.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const MOST_OWNERS = 5;

  let ooms = [];
  let chosen = 0;

  const element = (id) => document.getElementById(id);
  const size = (bytes) => (bytes === null || bytes === undefined ? "not known" : vramscope.mapWords.formatBytes(bytes));

  /** Show what is missing in a device's timeline: one line, the rest folded into it. */
  function messages(device) {
    const { make } = vramscope.dom;
    const [first, ...more] = device.notes;
    if (!first) return element("messages").replaceChildren();
    if (!more.length) return element("messages").replaceChildren(make("div", first, "banner quiet"));
    const head = make("summary", `${first}  (+ ${more.length} more)`);
    return element("messages").replaceChildren(make("details", "", "banner quiet", head, ...more.map((line) => make("div", line))));
  }

  /** Say in the timeline's place why there is none, and what can be done. */
  function noTimeline({ contradiction, moments, events, segments }) {
    const { make } = vramscope.dom;
    element("messages").replaceChildren();
    const [why, then] =
      moments === "none"
        ? [`This file contradicts itself: ${contradiction}.`, "A map, stacks or tables of this GPU would be a guess, so none are shown. What the file states is under Settings."]
        : contradiction
          ? [`The memory over time does not follow from this file: ${contradiction}.`, "The state at the end is shown below."]
          : !events && !segments
            ? ["This file holds nothing of this GPU.", "It was not used, or not yet, when the snapshot was written."]
            : ["This file holds no history of this GPU.",
              "The state at the end is shown below. For a timeline, call torch.cuda.memory._record_memory_history() before the part that matters, and dump again."];
    element("memory-none").replaceChildren(make("b", why), make("p", then));
  }

  /** Fetch the device's out-of-memories and show the first; returns its event, or null. */
  async function load(device) {
    ooms = [];
    element("oom").hidden = true;
    element("to-oom").hidden = !device.oom.length;
    if (!device.oom.length) return;
    const told = await vramscope.server.json(vramscope.place.route("oom.json"));
    ooms = told.ooms;
    if (!ooms.length) return;
    const options = ooms.map((found, n) => ({ value: n, label: `${n + 1} of ${ooms.length + told.left_out}: ${size(found.rounded_request_bytes)} at event ${found.event}` }));
    window.dash_clientside.set_props("oom-picker", { options, value: 0 });
    element("oom-picker").closest(".oom-picker").hidden = ooms.length < 2;
    show(0);
  }

  function show(n) {
    const found = ooms[n];
    if (!found) return;
    chosen = n;
    const { make } = vramscope.dom;
    const facts = [
      ["Asked for", size(found.rounded_request_bytes)],
      ["Largest hole it could use", size(found.largest_hole_bytes)],
      ["Cached and free in all", size(found.free_bytes)],
      ["Free on the device", size(found.device_free_bytes)],
      ["Reserved", size(found.reserved_bytes)],
    ];
    const holders = found.categories.slice(0, MOST_OWNERS).map(({ category, bytes }) => `${category} ${size(bytes)}`);
    const items = facts.map(([name, value]) => make("span", `${name} `, "", make("b", value)));
    if (holders.length) items.push(make("span", "On the card ", "", make("b", holders.join(" · "))));
    element("oom-verdict").textContent = found.verdict;
    element("oom-facts").replaceChildren(...items);
    element("oom").hidden = false;
  }

  /** Show another out-of-memory; returns whether it is another. */
  function pick(n) {
    if (!ooms[n] || n === chosen) return false;
    show(n);
    return true;
  }

  /** Return the event of the shown out-of-memory, null where there is none. */
  const event = () => (ooms[chosen] ? ooms[chosen].event : null);

  vramscope.findings = { messages, noTimeline, load, pick, event };
})();
