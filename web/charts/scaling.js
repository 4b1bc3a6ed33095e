// Loss against parameters or training FLOPs with the fitted laws L = E + A · size^−α.
import {areaY, dot, line, pointer, ruleY, tip} from "@observablehq/plot";
import {colourOf, data, dashOf, element, framed, heightOf, install, legend, markerOf, scaleChoice, short, t, toggle} from "./common.js";

const draw = (width, state) => {
  const groups = data.scaling.groups.filter((group) => !state.hidden.has(group.label));
  const less = (group) => (state.subtract ? group.irreducible : 0);
  const points = groups.flatMap((group) => group.points.map(([size, loss, seed]) =>
    ({group, size, loss: loss - less(group), seed}))).filter((p) => !state.yLog || p.loss > 0);
  if (points.length === 0) return element("p", {class: "note"}, t("chart.hidden"));
  const curveOf = (group) => group.curve.map(([size, loss, low, high]) =>
    ({size, loss: loss - less(group), low: low - less(group), high: high - less(group)})).filter((p) => !state.yLog || p.loss > 0);
  const values = [...points.map((p) => p.loss), ...groups.flatMap((group) => curveOf(group).map((p) => p.loss))];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = 0.06 * (high - low || 1);
  const domain = state.yLog ? [low / (high / low) ** 0.06, high * (high / low) ** 0.06] : [low - room, high + room];
  const sizes = points.map((p) => p.size);
  return framed({
    width, height: heightOf("scaling", Math.max(320, Math.min(460, width * 0.46))),
    x: {type: "log", domain: [Math.min(...sizes) / 1.15, Math.max(...sizes) * 1.15], label: t(`scaling.${data.scaling.against}`), tickFormat: (x) => short(x), ticks: Math.max(3, Math.floor(width / 120))},
    y: {type: state.yLog ? "log" : "linear", label: `${t("measure.best_loss")}${state.subtract ? " − E" : ""}`, grid: true, domain,
      tickFormat: (y) => `${Number(y.toPrecision(3))}`, ticks: 6},
    marks: [
      ...(state.bands ? groups.map((group) => areaY(curveOf(group), {x: "size", y1: (p) => Math.max(p.low, domain[0]), y2: "high",
        fill: colourOf(group.label), fillOpacity: 0.16, clip: true})) : []),
      ...(state.subtract ? [] : groups.filter((group) => group.irreducible >= domain[0]).map((group) =>
        ruleY([group.irreducible], {stroke: colourOf(group.label), strokeDasharray: "4 4"}))),
      ...groups.map((group) => line(curveOf(group), {x: "size", y: "loss", stroke: colourOf(group.label), strokeWidth: 2,
        strokeDasharray: dashOf(group.label)})),
      ...groups.map((group) => dot(points.filter((p) => p.group === group), {x: "size", y: "loss", r: 3.5, fill: colourOf(group.label),
        stroke: "var(--paper)", symbol: markerOf(group.label)})),
      tip(points, pointer({x: "size", y: "loss", title: (p) =>
        `${p.group.label}, ${t("chart.seed")} ${p.seed}\n${short(p.size)}: ${p.loss.toFixed(4)}\n${p.group.law}`})),
    ],
  });
};

export const scaling = () => {
  if (!data.scaling) return;
  const state = {yLog: false, subtract: false, bands: true, hidden: new Set()};
  install("scaling", (redraw) => [
    scaleChoice(t("chart.y_scale"), false, (log) => { state.yLog = log; redraw(); }),
    toggle(t("chart.bands"), true, (on) => { state.bands = on; redraw(); }),
    toggle(t("chart.irreducible"), false, (on) => { state.subtract = on; redraw(); }),
    legend(data.scaling.groups.map((group) => group.label), state.hidden, redraw),
  ], (width) => draw(width, state));
};
