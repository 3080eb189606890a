// Live pages: when something happens in a task that a page is about, the page is fetched again and its parts that differ
// are put in place. What is typed, the focus and open panels stay. Without this script every page works, and stands still.
'use strict';

const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const about = document.body.dataset.live;

// Local time where the server could only say UTC.
function localise(root) {
  for (const time of $$('time[data-clock]', root)) {
    time.textContent = new Date(time.dateTime).toLocaleTimeString([], { hour12: false });
  }
  for (const time of $$('time[data-local]', root)) time.textContent = new Date(time.dateTime).toLocaleString();
}

// Whether somebody is at work in a part: it must not be taken from under their hands.
function isBusy(part) {
  const active = document.activeElement;
  if (active && active !== part && part.contains(active) && active.matches('input, textarea, select')) return true;
  return $$('input, textarea, select', part).some((field) => {
    if (field.type === 'hidden') return false;
    if (field.type === 'checkbox') return field.checked !== field.defaultChecked;
    if (field.tagName === 'SELECT') return [...field.options].some((option) => option.selected !== option.defaultSelected)
      && [...field.options].some((option) => option.defaultSelected);
    return field.value !== field.defaultValue;
  });
}

// A part as a text that differs only if something has happened: keys of forms and ages are new each time.
function essence(part) {
  const copy = part.cloneNode(true);
  for (const field of $$('input[name=key]', copy)) field.remove();
  for (const time of $$('time', copy)) time.textContent = '';
  for (const details of $$('details', copy)) details.removeAttribute('open');
  return copy.innerHTML;
}

const waiting = new Set();

function put(old, fresh) {
  const open = new Set($$('details[open][id]', old).map((details) => details.id));
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const again = focus && (focus.id ? `#${CSS.escape(focus.id)}`
    : focus.getAttribute('href') ? `a[href="${CSS.escape(focus.getAttribute('href'))}"]` : null);
  const node = document.importNode(fresh, true);
  old.replaceWith(node);
  for (const details of $$('details[id]', node)) if (open.has(details.id)) details.open = true;
  localise(node);
  if (again) node.querySelector(again)?.focus({ preventScroll: true });
}

function offer() {
  let button = document.getElementById('new');
  if (!waiting.size) { button?.remove(); return; }
  if (!button) {
    button = document.createElement('button');
    button.id = 'new';
    button.className = 'new';
    button.addEventListener('click', () => { waiting.clear(); button.remove(); refresh(true); });
    document.getElementById('main').prepend(button);
  }
  button.textContent = waiting.size === 1 ? '1 part has changed: show it' : `${waiting.size} parts have changed: show them`;
}

let fetching = false, wanted = false, last = 0;

async function refresh(all) {
  if (fetching) { wanted = true; return; }
  fetching = true;
  try {
    const response = await fetch(location.href, { headers: { accept: 'text/html' }, redirect: 'manual' });
    if (response.type === 'opaqueredirect') { location.reload(); return; }
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    document.title = fresh.title;
    notify(fresh);
    // Parts within a part are put in place with it, unless somebody is at work in one of them.
    for (const old of $$('[data-part]')) {
      if (!old.isConnected) continue;
      const next = fresh.getElementById(old.id);
      if (!next) { if (!isBusy(old)) old.remove(); else waiting.add(old.id); continue; }
      if (essence(old) === essence(next)) {
        if (!isBusy(old) && !old.contains(document.activeElement)) for (const time of $$('time', old)) {
          const same = $$('time', next)[$$('time', old).indexOf(time)];
          if (same && !('clock' in time.dataset)) time.textContent = same.textContent;
        }
        waiting.delete(old.id);
      } else if (!all && isBusy(old)) {
        const inner = (part) => $$('[data-part]', part).map((within) => within.id).join();
        if (!inner(old) || inner(old) !== inner(next)) waiting.add(old.id);
      } else {
        put(old, next);
        waiting.delete(old.id);
      }
    }
    for (const next of $$('main > [data-part]', fresh)) {
      if (!document.getElementById(next.id)) waiting.add(next.id);
    }
    localise(document);
    offer();
  } catch { /* The stream says whether the server is there. */ } finally {
    fetching = false;
    last = Date.now();
    if (wanted) { wanted = false; soon(); }
  }
}

// Who wants to is told by the browser when more waits than before; what waits is only counted.
const able = 'Notification' in window;
function notify(fresh) {
  const count = (root) => Number(root.getElementById('waiting-count')?.textContent) || 0;
  const more = count(fresh) - count(document);
  if (more > 0 && able && Notification.permission === 'granted' && localStorage.notify === 'on' && document.hidden) {
    new Notification('Handover', { body: `${count(fresh)} waiting for you`, tag: 'handover' });
  }
}
function offerNotifications() {
  const here = document.querySelector('nav a[aria-current][href="/"]');
  if (!here || !able) return;
  const button = document.createElement('button');
  button.className = 'plain';
  const show = () => {
    const on = Notification.permission === 'granted' && localStorage.notify === 'on';
    button.textContent = on ? 'Notify me: on' : 'Notify me: off';
    button.setAttribute('aria-pressed', on);
  };
  button.addEventListener('click', async () => {
    const on = localStorage.notify === 'on' && Notification.permission === 'granted';
    localStorage.notify = !on && await Notification.requestPermission() === 'granted' ? 'on' : 'off';
    show();
  });
  show();
  document.querySelector('main h1')?.after(button);
}

// At most one look a second, however much happens.
let timer = 0;
function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(false); }, Math.max(100, last + 1000 - Date.now()));
}

function happened(task) {
  if (about === 'all' || about === task || task === '*') soon();
}

// One stream for all pages of a browser: browsers open few connections. Whoever has the lock listens and tells the others.
function listen() {
  const state = document.getElementById('live');
  const show = (word) => { state.textContent = word; state.className = word === 'live' ? 'live on' : 'live off'; };
  const channel = new BroadcastChannel('handover-live');
  let alive = '';
  channel.onmessage = ({ data }) => {
    if (data.state) show(data.state);
    if (data.task) happened(data.task);
    if (data.ask && alive) channel.postMessage({ state: alive });
  };
  show('reconnecting');
  channel.postMessage({ ask: true });
  const lead = () => new Promise(() => {
    let lost = false;
    const tell = (word) => { alive = word; show(word); channel.postMessage({ state: word }); };
    const open = () => {
      const stream = new EventSource('/live');
      stream.addEventListener('hello', () => {
        tell('live');
        // What happened while nobody listened is looked at as a whole.
        if (lost) { happened('*'); channel.postMessage({ task: '*' }); }
        lost = false;
      });
      stream.addEventListener('changed', ({ data }) => {
        const { task } = JSON.parse(data);
        happened(task);
        channel.postMessage({ task });
      });
      stream.onerror = () => {
        lost = true;
        tell('reconnecting');
        if (stream.readyState === EventSource.CLOSED) setTimeout(open, 5000);
      };
    };
    open();
  });
  if (navigator.locks) navigator.locks.request('handover-live', lead); else lead();
}

// Ids are copied by a click.
document.addEventListener('click', (event) => {
  const id = event.target.closest?.('[data-copy]');
  if (id && navigator.clipboard) navigator.clipboard.writeText(id.dataset.copy).then(() => { id.title = 'copied'; }, () => {});
});

// A form is sent once.
document.addEventListener('submit', (event) => {
  if (event.target.method !== 'post') return;
  setTimeout(() => { for (const button of $$('button', event.target)) button.disabled = true; }, 0);
});
window.addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); });

// The slash finds; in a replay the arrows step, Home and End go to its ends.
document.addEventListener('keydown', (event) => {
  const typing = event.target.matches?.('input:not([type=range]), textarea, select');
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { document.getElementById('find')?.focus(); event.preventDefault(); }
  const step = { ArrowLeft: 'back', ArrowRight: 'on', Home: 'first', End: 'last' }[event.key];
  const link = step && document.querySelector(`[data-replay] [data-step=${step}]`);
  if (link) { event.preventDefault(); link.click(); }
});
for (const form of $$('[data-replay]')) form.elements.at.addEventListener('change', () => form.requestSubmit());

localise(document);
if (document.getElementById('live')) {
  listen();
  offerNotifications();
  if (about) setInterval(() => { if (!document.hidden) soon(); }, 60000);
}
