"use strict";
// Every .chart[data-chart] becomes a figure whose values are read off by pointer, touch or arrow keys.
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PAPER = 640; // pixels that fit on a sheet
const digits = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toLocaleString("en"));

function shownValue(spec, line, index) {
  const value = index === null ? null : line.y[index];
  if (value === null || value === undefined) return "–";
  if (!line.low) return digits(value);
  return `${digits(value)} (${digits(line.low[index])} to ${digits(line.high[index])})`;
}

// Which ticks of a logarithmic axis have a number: as many as stand beside each other.
function named(u, axisAt) {
  const scale = u.scales[axisAt ? "y" : "x"];
  const room = (axisAt ? 3 * u.bbox.height : u.bbox.width) / devicePixelRatio / Math.log10(scale.max / scale.min);
  return room > 130 ? /^[125]/ : /^1(\.0+)?e/;
}

function axis(label, size, log) {
  const ticks = (u, splits) => splits.map((v) => (v === null ? "" : digits(v)));
  return {
    label, size, stroke: style("--soft"), font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    labelSize: 18, grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 },
    values: ticks,
    ...(log ? { filter: (u, splits, axisAt) => splits.map((v) => (named(u, axisAt).test(v.toExponential()) ? v : null)) } : {}),
  };
}

const printing = () => document.documentElement.classList.contains("printing");
const widthOf = (figure) => (printing() ? Math.min(figure.clientWidth, PAPER) : figure.clientWidth);

function draw(figure) {
  const spec = JSON.parse(figure.dataset.chart);
  const data = [spec.x];
  const series = [{ label: spec.xLabel, value: (u, v) => digits(v) }];
  const bands = [];
  spec.lines.forEach((line, k) => {
    const color = style(`--line-${k % 6}`);
    data.push(line.y);
    series.push({
      label: line.label, stroke: color, width: 2, spanGaps: true, dash: line.dash,
      points: { show: spec.x.length < 3 },
      value: (u, v, s, index) => shownValue(spec, line, index),
    });
    if (!line.low) return;
    const at = data.length;
    for (const edge of [line.high, line.low]) {
      data.push(edge);
      series.push({ label: line.label, class: "edge", stroke: "transparent", width: 0, points: { show: false }, spanGaps: true });
    }
    bands.push({ series: [at, at + 1], fill: `${color}33` });
  });
  const made = new uPlot(
    {
      width: widthOf(figure), height: 260, series, bands, legend: { live: true },
      scales: {
        x: { time: false, distr: spec.xLog ? 3 : 1 },
        y: { distr: spec.yLog ? 3 : 1, range: spec.yRange ? () => spec.yRange : undefined },
      },
      axes: [axis(spec.xLabel, 40, spec.xLog), axis(spec.yLabel, 56, spec.yLog)],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    },
    data,
    figure,
  );
  let index = spec.x.length - 1;
  const show = () => made.setCursor({ left: made.valToPos(spec.x[index], "x"), top: 0 });
  figure.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    index = Math.min(spec.x.length - 1, Math.max(0, (made.cursor.idx ?? index) + step));
    show();
  };
  show();
  return made;
}

for (const figure of document.querySelectorAll(".chart[data-chart]")) {
  figure.tabIndex = 0;
  let made = draw(figure);
  figure.classList.add("drawn");
  new ResizeObserver(() => {
    if (!printing() && figure.clientWidth && figure.clientWidth !== made.width) made.setSize({ width: figure.clientWidth, height: 260 });
  }).observe(figure);
  const again = () => {
    made.destroy();
    made = draw(figure);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      document.documentElement.classList.toggle("printing", paper); // a canvas keeps the colours it was drawn in
      again();
    });
  }
}
