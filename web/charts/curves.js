// Learning curves: mean over seeds with bands, against updates, tokens or seconds.
import {areaY, pointer, ruleY, text, tip} from "@observablehq/plot";
import {choice, colourOf, curveMarks, data, framed, heightOf, install, legend, scaleChoice, short, t, toggle} from "./common.js";

// Columns of a point: [step, mean, low, high, tokens, seconds].
const COLUMN = {step: 0, tokens: 4, seconds: 5};

const pointsOf = (band, state) => band.points
  .map((p) => ({x: p[COLUMN[state.against]], mean: p[1], low: p[2], high: p[3]}))
  .filter((p) => p.x !== null && (!state.xLog || p.x > 0) && (!state.yLog || p.mean > 0));

// The first losses are far above the rest, so with 100 points or more the highest 2 % may lie outside the chart.
const lossDomain = (seen, state) => {
  if (seen.length === 0) return [0.5, 1];
  const sorted = seen.map((p) => p.mean).sort((a, b) => a - b);
  const highest = state.bands ? Math.max(...seen.map((p) => p.high)) : sorted.at(-1);
  const top = sorted.length < 100 ? highest : sorted[Math.floor(0.98 * (sorted.length - 1))];
  const bottom = Math.min(...seen.map((p) => (state.bands ? p.low : p.mean)));
  if (state.yLog) {
    const low = Math.max(bottom, 0.5 * sorted[0]);
    return [low / (top / low) ** 0.04, top * (top / low) ** 0.04];
  }
  const room = 0.04 * Math.max(top - bottom, 1e-6);
  return [bottom - room, top + room];
};

// Plot puts few ticks on a logarithmic axis of less than a decade; these are 1, 2, 3, 5, 7 times powers of ten.
const logTicks = ([low, high]) => {
  if (high / low > 30) return undefined;
  const ticks = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const digit of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) {
      if (digit * power >= low && digit * power <= high) ticks.push(digit * power);
    }
  }
  return ticks;
};

const drawCurves = (width, state) => {
  const bands = data[state.losses].filter((band) => !state.hidden.has(band.label))
    .map((band) => ({label: band.label, points: pointsOf(band, state)})).filter((band) => band.points.length > 0);
  const every = bands.flatMap(({label, points}) => points.map((p) => ({label, ...p})));
  const from = state.end ? 0.4 * Math.max(...every.map((p) => p.x)) : 0;
  const domain = lossDomain(every.filter((p) => p.x >= from), state);
  const height = heightOf("curves", Math.max(320, Math.min(480, width * 0.48)));
  const [low, high] = state.yLog ? domain.map(Math.log) : domain;
  const toPixels = (loss) => (state.yLog ? Math.log(loss) : loss) * (height - 70) / (high - low);
  const inside = (loss) => loss >= domain[0] && loss <= domain[1];
  const target = data.target !== null && inside(data.target);
  return framed({
    width, height, insetLeft: 6, insetRight: 6, marginRight: target ? 54 : 20,
    x: {label: t(`chart.${state.against}`), type: state.xLog ? "log" : "linear", tickFormat: (x) => short(x), nice: false,
      ticks: Math.max(3, Math.floor(width / 110))},
    y: {label: t(`chart.${state.losses}_loss`), grid: true, domain, type: state.yLog ? "log" : "linear",
      ticks: state.yLog ? logTicks(domain) : undefined, tickFormat: (y) => `${Number(y.toPrecision(4))}`},
    marks: [
      ...(state.bands ? bands.map(({label, points}) => areaY(points, {x: "x", y1: (p) => Math.max(p.low, domain[0]), y2: "high",
        fill: colourOf(label), fillOpacity: Math.min(0.18, 1.2 / bands.length), clip: true})) : []),
      // The target's name is in the margin, where no curve can cross it.
      ...(target ? [
        ruleY([data.target], {stroke: "var(--faint)", strokeDasharray: "4 4"}),
        text([data.target], {y: (y) => y, frameAnchor: "right", textAnchor: "start", dx: 8, text: () => t("chart.target"),
          fill: "var(--faint)"}),
      ] : []),
      ...curveMarks(bands, toPixels, {x: "x", y: "mean", radius: 3, inside}),
      tip(every, pointer({x: "x", y: "mean", title: (p) =>
        `${p.label}\n${t(`chart.${state.against}`)} ${short(p.x)}\n${p.mean.toFixed(4)} ± ${((p.high - p.low) / 2).toFixed(4)}`})),
    ],
  });
};

export const curves = () => {
  const state = {losses: data.validation.length ? "validation" : "training", against: "step", xLog: false, yLog: false,
    end: false, bands: true, hidden: new Set()};
  const all = [...data.validation, ...data.training];
  const recorded = ["step", "tokens", "seconds"].filter((name) =>
    all.length > 0 && all.every((band) => band.points.every((p) => p[COLUMN[name]] !== null)));
  install("curves", (redraw) => [
    ...(data.validation.length && data.training.length
      ? [choice(t("chart.loss"), [["validation", t("chart.validation")], ["training", t("chart.training")]], state.losses,
          (value) => { state.losses = value; redraw(); })] : []),
    choice(t("chart.against"), recorded.map((name) => [name, t(`chart.against.${name}`)]), "step",
      (value) => { state.against = value; redraw(); }),
    scaleChoice(t("chart.x_scale"), false, (log) => { state.xLog = log; redraw(); }),
    scaleChoice(t("chart.y_scale"), false, (log) => { state.yLog = log; redraw(); }),
    choice(t("chart.shown"), [["all", t("chart.all")], ["end", t("chart.end")]], "all",
      (value) => { state.end = value === "end"; redraw(); }),
    toggle(t("chart.bands"), state.bands, (on) => { state.bands = on; redraw(); }),
    legend(Array.from(new Set(all.map((band) => band.label))), state.hidden, redraw),
  ], (width) => drawCurves(width, state));
};
