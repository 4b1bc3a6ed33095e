// Line icons, 24 by 24. They are decoration: the button around one has the label.
const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V6M6 11.5 12 5.5l6 6",
  stop: "M8 8h8v8H8z",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  retry: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  copy: "M9 9h10v11H9zM15 9V5H5v11h4",
  share: "M7 12a2.2 2.2 0 1 1-4.4 0A2.2 2.2 0 0 1 7 12zM21.4 6A2.2 2.2 0 1 1 17 6a2.2 2.2 0 0 1 4.4 0zM21.4 18a2.2 2.2 0 1 1-4.4 0 2.2 2.2 0 0 1 4.4 0zM6.8 11l10.4-4.2M6.8 13l10.4 4.2",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M19.5 14A8 8 0 1 1 10 4.5a6.3 6.3 0 0 0 9.5 9.5z",
  help: "M9 9.2a3 3 0 1 1 4.3 2.7c-.9.5-1.3 1-1.3 2.1M12 17.2v.4",
  inspect: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5 20 20",
  chat: "M4 5h16v11H10l-4.5 4v-4H4z",
  compare: "M4 5h6.5v14H4zM13.5 5H20v14h-6.5z",
  server: "M4 5h16v6H4zM4 13h16v6H4zM7 8h.1M7 16h.1",
  close: "M6 6l12 12M18 6 6 18",
  check: "M5 12.5l4.5 4.5L19 7.5",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  palette: "M4 7h6M12 7h8M4 12h9M15 12h5M4 17h4M10 17h10",
  branch: "M7 4v9a4 4 0 0 0 4 4h6M14 13l4 4-4 4",
  play: "M8 5.5v13l10.5-6.5z",
};

export const Icon = ({name, size = 18}) => (
  <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true"><path d={PATHS[name]} /></svg>
);

/** A button with an icon; `label` is its accessible name and tooltip. */
export const IconButton = ({icon, label, size, ...others}) => (
  <button type="button" class="icon-button" aria-label={label} title={label} {...others}><Icon name={icon} size={size} /></button>
);

export const Logo = ({size = 26}) => (
  <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
    <path class="sheet-3" d="M16 18 3 24.5 16 31l13-6.500z" />
    <path class="sheet-2" d="M16 10.500 3 17l13 6.500L29 17z" />
    <path class="sheet-1" d="M16 2.500 3 9l13 6.500L29 9z" />
  </svg>
);
