/**
 * Owner grid: what the table of owners asks of the page, as dash-ag-grid finds it.
 */
(() => {
  /** Return a cell for the CSV file; names come from the job, and a spreadsheet must not take one for a formula. */
  function csvCell({ value }) {
    return typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  }

  /** Let Tab leave the table for what follows it, instead of passing through each of its cells; arrows move between those. */
  const leaveTable = () => false;

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, { csvCell, leaveTable });
})();
