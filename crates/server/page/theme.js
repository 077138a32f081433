// The theme: that of the system, or the one that the user chose. It is loaded before the first paint, so it is no module.

(() => {
  const NAME = 'gristmill-theme';
  const known = ['light', 'dark'];

  function read() {
    try {
      const value = localStorage.getItem(NAME);
      return known.includes(value) ? value : 'system';
    } catch {
      return 'system';
    }
  }

  function show(value) {
    if (known.includes(value)) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
  }

  document.addEventListener('set-theme', ({ detail }) => {
    try {
      localStorage.setItem(NAME, detail);
    } catch {
      // It holds until the page is closed.
    }
    show(detail);
    document.dispatchEvent(new Event('theme'));
  });
  // Another tab has chosen.
  addEventListener('storage', ({ key }) => {
    if (key !== NAME) return;
    show(read());
    document.dispatchEvent(new Event('theme'));
  });
  show(read());
})();
