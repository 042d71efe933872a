/**
 * Search: the box in the header that finds allocations by address, size or stack, and its list of hits.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const AFTER_MS = 250;

  let timer = null;
  let asked = null;

  const element = (id) => document.getElementById(id);
  const close = () => (element("search-hits").hidden = true);

  async function look(text) {
    if (asked) asked.abort();
    if (!text.trim() || vramscope.moment.event() === null) {
      close();
      return;
    }
    const mine = (asked = new AbortController());
    try {
      const found = await vramscope.server.json(vramscope.place.route("search.json"), { q: text, event: vramscope.moment.event() }, mine.signal);
      if (!mine.signal.aborted) show(found);
    } catch (error) {
      if (!vramscope.server.isAbort(error)) list([vramscope.dom.make("p", error.message, "muted")]);
    }
  }

  function list(children) {
    element("search-hits").replaceChildren(...children);
    element("search-hits").hidden = false;
  }

  function show({ hits, total, cut, what }) {
    const { make, button } = vramscope.dom;
    const count = total === 0 ? "nothing" : cut ? `the largest ${hits.length} of ${total.toLocaleString("en")}` : `${total}`;
    const entries = hits.map((hit) => {
      const found = button(vramscope.memoryWords.shortSite(hit.label), () => go(hit), "link");
      found.title = hit.label;
      return make("li", "", "", found);
    });
    list([make("p", `${count}: ${what}`, "muted"), make("ul", "", "", ...entries)]);
  }

  function go(hit) {
    close();
    vramscope.page.jump(hit.event);
    if (hit.allocation !== null) vramscope.details.show({ allocation: hit.allocation, address: null });
  }

  function attach() {
    const field = element("search");
    const input = field.matches("input") ? field : field.querySelector("input");
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(look, AFTER_MS, input.value);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter") look(input.value);
      if (event.key === "ArrowDown" && !element("search-hits").hidden) element("search-hits").querySelector("button")?.focus();
    });
    document.addEventListener("pointerdown", (event) => !event.target.closest(".search") && close());
    document.addEventListener("keydown", (event) => event.key === "Escape" && event.target.closest(".search-hits") && close());
  }

  vramscope.search = { attach };
})();
