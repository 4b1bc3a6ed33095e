// The page redraws shortly after an event, so a check of what it shows must allow for that.

/** True as soon as `holds()` is; false if it is not within five seconds. */
export const soon = async (holds) => {
  for (const end = Date.now() + 5000; Date.now() < end;) {
    if (await holds()) return true;
    await new Promise((done) => { setTimeout(done, 20); });
  }
  return false;
};
