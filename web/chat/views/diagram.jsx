// The block diagram of a model. The SVG is rebuilt from a list of known elements and attributes: nothing else gets in.
import {useEffect, useRef, useState} from "preact/hooks";
import {call} from "../lib/api.js";

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set(["svg", "g", "rect", "text", "tspan", "polyline", "polygon", "line", "path", "circle", "title"]);
const ATTRIBUTES = new Set(["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "viewBox", "points", "d",
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-linejoin", "stroke-dasharray", "stroke-opacity", "font-size",
  "font-weight", "font-style", "text-anchor", "transform", "opacity"]);

/** A copy of an SVG element with known elements and attributes only; null for any other element. */
export const copySvg = (element) => {
  if (!ELEMENTS.has(element.localName)) return null;
  const made = document.createElementNS(SVG, element.localName);
  for (const {name, value} of element.attributes) if (ATTRIBUTES.has(name) && !/url\(/i.test(value)) made.setAttribute(name, value);
  for (const child of element.childNodes) {
    const copied = child.nodeType === Node.TEXT_NODE ? document.createTextNode(child.data) : child.nodeType === Node.ELEMENT_NODE ? copySvg(child) : null;
    if (copied) made.append(copied);
  }
  return made;
};

export const Diagram = ({model}) => {
  const frame = useRef(null);
  const [facts, setFacts] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!model) return undefined;
    const controller = new AbortController();
    const load = async () => {
      try {
        const answer = await call(`/v1/models/${encodeURIComponent(model)}/architecture`, {signal: controller.signal});
        // Its style is for files; the page has its own, and the Content-Security-Policy would report this one.
        const plain = answer.svg.replace(/<style[\s\S]*?<\/style>/gi, "");
        const parsed = new DOMParser().parseFromString(plain, "image/svg+xml").documentElement;
        const drawn = copySvg(parsed);
        drawn?.setAttribute("role", "img");
        drawn?.setAttribute("aria-label", `Block diagram of ${model}`);
        frame.current?.replaceChildren(...(drawn ? [drawn] : []));
        const {total, active} = answer.parameters;
        setFacts(`${total.toLocaleString("en")} parameters${active < total ? `, ${active.toLocaleString("en")} active` : ""}`);
        setProblem("");
      } catch (error) {
        if (error.name !== "AbortError") setProblem(error.message);
      }
    };
    load();
    return () => controller.abort();
  }, [model]);
  return (
    <section class="card diagram">
      <h3>Architecture <small>{facts}</small></h3>
      {problem ? <p class="hint">{problem}</p> : null}
      <div class="scroll" ref={frame} tabindex="0" role="region" aria-label="Block diagram" />
    </section>
  );
};
