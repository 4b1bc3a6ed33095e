// Quality against cost.
import {dot, pointer, ruleX, text, tip} from "@observablehq/plot";
import {choice, colourOf, data, element, formatFor, framed, heightOf, install, legend, markerOf, quality, scaleChoice, t} from "./common.js";

// Whether the labels are few and short enough to be next to their points. Otherwise only the legend names them.
const fitBesidePoints = (points, width) => points.length <= 8 && points.every((p) => 6.6 * p.label.length < 0.3 * width);

// Coincident points get smaller radii, so that a ring of each point below stays visible.
const radii = (points, apart) => points.map((p, i) => Math.max(2, 6.5 - 2 * points.slice(0, i).filter((q) => apart(p, q) < 3).length));

// Places labels next to their points and moves them down if they would overlap.
const labelMarks = (points, chart, width) => {
  const [x, y] = [chart.scale("x"), chart.scale("y")];
  const placed = [];
  return points.map((p) => ({p, px: x.apply(p.cost), py: y.apply(p.quality)})).sort((a, b) => a.py - b.py)
    .map(({p, px, py}) => {
      const wide = 6.6 * p.label.length;
      const before = px + 10 + wide > width - 4;
      const left = before ? px - 10 - wide : px + 10;
      let at = py;
      for (let moved = true; moved;) {
        moved = false;
        for (const other of placed) {
          if (left < other.left + other.wide && other.left < left + wide && Math.abs(at - other.at) < 14) {
            at = other.at + 14;
            moved = true;
          }
        }
      }
      placed.push({left, wide, at});
      return text([p], {x: "cost", y: "quality", text: "label", textAnchor: before ? "end" : "start", dx: before ? -10 : 10,
        dy: at - py, fill: "currentColor"});
    });
};

const drawCost = (width, state) => {
  const whole = data.costs.find((cost) => cost.key === state.key);
  const chosen = {...whole, points: whole.points.filter((p) => !state.hidden.has(p.label))};
  if (chosen.points.length === 0) return element("p", {class: "note"}, t("chart.hidden"));
  const spread = (p) => p.spread ?? 0;
  const reach = chosen.points.flatMap((p) => [p.quality - spread(p), p.quality + spread(p)]);
  const [low, high] = [Math.min(...reach), Math.max(...reach)];
  const room = 0.08 * (high - low || Math.abs(high) || 1);
  const costs = chosen.points.map((p) => p.cost);
  const [cheap, dear] = [Math.min(...costs), Math.max(...costs)];
  const log = state.log && cheap > 0;
  const height = heightOf("cost", Math.max(320, Math.min(440, width * 0.46)));
  const position = (p) => [(width - 84) * (p.cost - cheap) / (dear - cheap || 1), (height - 70) * (p.quality - low) / (high - low || 1)];
  const apart = (p, q) => Math.max(...position(p).map((at, i) => Math.abs(at - position(q)[i])));
  const radius = radii(chosen.points, apart);
  const aside = log ? (dear / cheap) ** 0.06 : 0.06 * (dear - cheap);
  const options = {
    width, height, marginLeft: 64,
    x: {label: chosen.title, type: log ? "log" : "linear", tickFormat: formatFor(chosen.style, cheap, dear), ticks: Math.max(3, Math.floor(width / 130)),
      domain: log ? [cheap / aside, dear * aside] : [cheap - aside, dear + aside]},
    y: {label: `${data.quality.title} (${t(data.quality.lowerIsBetter ? "chart.lower" : "chart.higher")})`, grid: true,
      domain: [low - room, high + room], tickFormat: data.quality.percent ? (y) => `${Math.round(100 * y)} %` : undefined},
    marks: [
      ...chosen.points.map((p) => ruleX([p], {x: "cost", y1: p.quality - spread(p), y2: p.quality + spread(p),
        stroke: colourOf(p.label), strokeWidth: 1.6})),
      ...chosen.points.map((p, i) => dot([p], {x: "cost", y: "quality", r: radius[i], fill: colourOf(p.label), stroke: "var(--paper)",
        symbol: markerOf(p.label)})),
      tip(chosen.points, pointer({x: "cost", y: "quality", title: (p) =>
        `${p.label}\n${chosen.title}: ${p.costText}\n${data.quality.title}: ${quality(p.quality)}` +
        (p.spread === null ? "" : ` ± ${quality(p.spread)}`)})),
    ],
  };
  if (!fitBesidePoints(chosen.points, width)) return framed(options);
  return framed({...options, marks: [...labelMarks(chosen.points, framed(options), width), ...options.marks]});
};

export const cost = () => {
  if (data.costs.length === 0) return;
  const state = {key: data.costs[0].key, log: false, hidden: new Set()};
  install("cost", (redraw) => [
    choice(t("chart.cost"), data.costs.map(({key, title}) => [key, title]), state.key, (value) => { state.key = value; redraw(); }),
    scaleChoice(t("chart.x_scale"), false, (log) => { state.log = log; redraw(); }),
    legend(Array.from(new Set(data.costs.flatMap(({points}) => points.map((p) => p.label)))), state.hidden, redraw),
  ], (width) => drawCost(width, state));
};
