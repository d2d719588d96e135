// What Chart.js does not draw by itself: interval bars, guides to a marker, hatching.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;

  // Points carry `low` and `high` beside x and y.
  const intervalBars = {
    id: "intervalBars",
    beforeDatasetDraw(chart, { index, meta }) {
      const dataset = chart.data.datasets[index];
      if (!dataset.intervals) return;
      const context = chart.ctx;
      const scale = chart.scales.y;
      context.save();
      context.lineWidth = 1.5;
      dataset.data.forEach((point, place) => {
        if (parts.missing(point.low) || parts.missing(point.high)) return;
        const x = meta.data[place].x;
        const [top, bottom] = [scale.getPixelForValue(point.high), scale.getPixelForValue(point.low)];
        context.strokeStyle = point.colour;
        context.beginPath();
        context.moveTo(x, top);
        context.lineTo(x, bottom);
        for (const end of [top, bottom]) {
          context.moveTo(x - 4, end);
          context.lineTo(x + 4, end);
        }
        context.stroke();
      });
      context.restore();
    },
  };

  // Dashed lines to both axes from `where()`; y may be left out for a line from top to bottom.
  function guides(where, colour) {
    return {
      id: "guides",
      afterDatasetsDraw(chart) {
        const place = where();
        if (place === null) return;
        const { ctx: context, chartArea: area, scales } = chart;
        const x = scales.x.getPixelForValue(place.x);
        const y = place.y === undefined ? area.top : scales.y.getPixelForValue(place.y);
        context.save();
        context.strokeStyle = colour;
        context.lineWidth = 1.5;
        context.setLineDash([4, 4]);
        context.beginPath();
        context.moveTo(x, area.bottom);
        context.lineTo(x, y);
        if (place.y !== undefined) context.lineTo(area.left, y);
        context.stroke();
        context.restore();
      },
    };
  }

  function hatching(colour, ground) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    context.fillStyle = ground;
    context.fillRect(0, 0, 8, 8);
    context.strokeStyle = colour;
    context.lineWidth = 2.5;
    for (const shift of [-8, 0, 8]) {
      context.beginPath();
      context.moveTo(shift - 1, 9);
      context.lineTo(shift + 9, -1);
      context.stroke();
    }
    return context.createPattern(tile, "repeat");
  }

  Object.assign(parts, { intervalBars, guides, hatching });
})();
