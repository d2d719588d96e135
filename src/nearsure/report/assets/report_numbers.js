// How numbers are written: fractions come in, percent goes out; what is missing is a dash.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const DASH = "\u2013";
  const grouped = new Intl.NumberFormat("en-US");

  const missing = (value) => value === null || value === undefined || !Number.isFinite(value);

  function count(value) {
    return missing(value) ? DASH : grouped.format(value);
  }

  // With a true minus sign, and none before a number that is written as zero.
  function fixed(value, digits) {
    return value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "\u2212");
  }

  function points(value, digits = 1) {
    return missing(value) ? DASH : fixed(100 * value, digits);
  }

  function percent(value, digits = 1) {
    return missing(value) ? DASH : points(value, digits) + "%";
  }

  function decimal(value, digits = 3) {
    return missing(value) ? DASH : fixed(value, digits);
  }

  function significant(value, digits = 3) {
    if (missing(value)) return DASH;
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1);
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return fixed(value, places);
  }

  // Two decimals, and more only where two would say 1.00 of something that is less.
  function threshold(value) {
    if (missing(value)) return DASH;
    let digits = 2;
    while (digits < 6 && value < 1 && Number(value.toFixed(digits)) >= 1) digits += 1;
    return value.toFixed(digits);
  }

  function range(estimate, isPercent = true) {
    if (!estimate || missing(estimate.low) || missing(estimate.high)) return null;
    const write = isPercent ? points : decimal;
    return write(estimate.low) + " to " + write(estimate.high);
  }

  function withRange(estimate, isPercent = true) {
    if (!estimate || missing(estimate.value)) return DASH;
    const value = isPercent ? percent(estimate.value) : decimal(estimate.value);
    const interval = range(estimate, isPercent);
    return interval === null ? value : value + " (" + interval + ")";
  }

  // Shares of a vote, each with one decimal, so that they add up to their sum as it is written.
  function shares(values) {
    const tenths = values.map((value) => 1000 * value);
    const written = tenths.map(Math.floor);
    const lacking = Math.round(tenths.reduce((sum, each) => sum + each, 0)) - written.reduce((sum, each) => sum + each, 0);
    const order = tenths.map((each, place) => [each - written[place], place]).sort((one, other) => other[0] - one[0]);
    for (const [, place] of order.slice(0, lacking)) written[place] += 1;
    return written.map((each) => each / 1000);
  }

  // Why a nearer neighbour has a smaller share, where one has; by a whole point at least.
  function surprise(neighbors) {
    for (const near of neighbors) {
      const far = neighbors.find((each) => each.sq_distance > near.sq_distance && each.share >= near.share + 0.01);
      if (far && far.label !== near.label) {
        return near.id + " is nearer than " + far.id + " but has a smaller share: classes also count by how densely their points lie " +
          "around the query.";
      }
    }
    return null;
  }

  function plural(number, one, many) {
    return count(number) + " " + (number === 1 ? one : many || one + "s");
  }

  Object.assign(parts, {
    DASH, missing, count, points, percent, decimal, significant, threshold, range, withRange, plural, shares, surprise,
  });
})();
