import {useState} from "preact/hooks";
import {blocksOf, spansOf} from "../lib/markup.js";
import {Icon} from "./icons.jsx";

const TAGS = {code: "code", bold: "strong", italic: "em"};

const Spans = ({text}) => spansOf(text).map((span, index) => {
  const Tag = TAGS[span.kind];
  return Tag ? <Tag key={index}>{span.text}</Tag> : span.text;
});

const CodeBlock = ({block}) => {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(block.text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <figure class="code">
      <figcaption>
        <span>{block.language || "text"}</span>
        <button type="button" onClick={copy}><Icon name={copied ? "check" : "copy"} size={14} />{copied ? "Copied" : "Copy"}</button>
      </figcaption>
      <pre tabindex="0"><code>{block.text}</code></pre>
    </figure>
  );
};

const Block = ({block}) => {
  switch (block.kind) {
    case "code": return <CodeBlock block={block} />;
    case "heading": return <h4><Spans text={block.text} /></h4>;
    case "quote": return <blockquote><Spans text={block.text} /></blockquote>;
    case "list": {
      const items = block.items.map((item, index) => <li key={index}><Spans text={item} /></li>);
      return block.ordered ? <ol start={block.start}>{items}</ol> : <ul>{items}</ul>;
    }
    default: return <p><Spans text={block.text} /></p>;
  }
};

/** Text of a model as paragraphs, lists and code. Everything is a text node. */
export const Markup = ({text}) => blocksOf(text).map((block, index) => <Block key={index} block={block} />);
