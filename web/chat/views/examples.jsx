// Prompts to begin with, where nothing was asked yet.
const EXAMPLES = {
  chat: ["Tell me a story about a brave little boat.", "Why is the sky blue?", "Write a Python function that reverses a list."],
  complete: ["Once upon a time, there was a", "To be, or not to be", "The three laws of thermodynamics are"],
};

/** Buttons with prompts of a mode: "chat" or "complete". Picking one moves the focus to the element with the id `field`. */
export const Examples = ({mode, field, onPick}) => (
  <div class="examples" role="group" aria-label="Examples">
    {EXAMPLES[mode].map((one) => (
      <button type="button" key={one} onClick={() => { onPick(one); document.getElementById(field)?.focus(); }}>{one}</button>
    ))}
  </div>
);
