// Live pages: when something happens in a task that a page is about, the page is fetched again and its parts that differ
// are put in place. What is typed, the focus and open panels stay. Without this script every page works, and stands still.
'use strict';

const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
// Which tasks the page is about: `all`, their ids, or none.
let about = document.body.dataset.live.split(' ').filter(Boolean);
document.documentElement.classList.add('scripted');

// A page that answers a form stands at the form's address: it is looked at, and linked to, where it lives.
const at = document.body.dataset.at || location.pathname + location.search;
if (document.body.dataset.at) history.replaceState(null, '', at);

const clock = (date) => date.toLocaleTimeString([], { hour12: false });

// Local time where the server could only say UTC.
function localise(root) {
  for (const time of $$('time[data-clock]', root)) time.textContent = clock(new Date(time.dateTime));
  for (const time of $$('time[data-local]', root)) time.textContent = new Date(time.dateTime).toLocaleString();
}

const FIELDS = 'input:not([type=hidden]), textarea, select';

// Whether a field says something else than the server wrote into it.
function isChanged(field) {
  if (field.type === 'checkbox' || field.type === 'radio') return field.checked !== field.defaultChecked;
  if (field.tagName === 'SELECT') {
    const before = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(before, 0);
  }
  return field.value !== field.defaultValue;
}

// Whether somebody is at work in a part: it must not be taken from under their hands.
function isBusy(part) {
  const active = document.activeElement;
  if (active && active !== part && part.contains(active) && active.matches(FIELDS)) return true;
  return !!part.querySelector('[data-typed]') || $$(FIELDS, part).some(isChanged);
}

// What finds a field again on the next page: what its form is about, and its name there. Its id may count forms.
function keyOf(field) {
  const hidden = (name) => field.form?.querySelector(`[type=hidden][name=${name}]`)?.value ?? '';
  const choice = field.type === 'checkbox' || field.type === 'radio' ? field.value : '';
  return [field.form?.getAttribute('action') ?? '', hidden('question'), hidden('proposal'), field.name, choice].join('\n');
}

// What finds a button again: what its form does, and what it says there.
const buttonOf = (button) => [button.form?.getAttribute('action') ?? '', button.getAttribute('formaction') ?? '', button.name, button.value, button.textContent].join('\n');

// What was typed in a part, put into the one that takes its place.
function carry(old, next) {
  const places = new Map($$(FIELDS, next).map((field) => [keyOf(field), field]));
  for (const field of $$(FIELDS, old)) {
    const place = places.get(keyOf(field));
    if (!place || !isChanged(field) && !field.closest('[data-typed]')) continue;
    if (field.type === 'checkbox' || field.type === 'radio') place.checked = field.checked;
    else place.value = field.value;
  }
  return places;
}

// What is new each time a page is looked at, though nothing has happened: ages, and how long something takes yet.
const AGES = 'time, [data-age]';

// A part as a text that differs only if something has happened: keys of forms and ages are new each time, and what was typed
// into a form that was refused stands in this page alone.
function essence(part) {
  const copy = part.cloneNode(true);
  for (const field of $$('input[name=key]', copy)) field.remove();
  for (const age of $$(AGES, copy)) { age.textContent = ''; age.removeAttribute('class'); }
  for (const details of $$('details', copy)) details.removeAttribute('open');
  for (const button of $$('button[data-copy=""]', copy)) button.remove();
  for (const typed of $$('[data-typed]', copy)) typed.removeAttribute('data-typed');
  for (const field of $$(FIELDS, copy)) {
    for (const name of ['value', 'checked']) if (name !== 'value' || !['checkbox', 'radio'].includes(field.type)) field.removeAttribute(name);
    if (field.tagName === 'TEXTAREA') field.textContent = '';
    for (const option of $$('option', field)) option.removeAttribute('selected');
  }
  return copy.innerHTML;
}

// Parts that have changed and wait to be shown, and how many rows of each are new.
const waiting = new Map();
const rows = (part) => $$('li[id], tr[id]', part).map((row) => row.id);
const fresh = (old, next) => {
  const known = new Set(rows(old));
  return rows(next).filter((id) => !known.has(id)).length;
};

function put(old, next) {
  const open = new Set($$('details[open][id]', old).map((details) => details.id));
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const typing = focus?.matches(FIELDS) ? { key: keyOf(focus), from: focus.selectionStart, to: focus.selectionEnd } : null;
  const pressed = focus?.matches('button') ? buttonOf(focus) : null;
  const again = focus && (focus.id ? `#${CSS.escape(focus.id)}`
    : focus.getAttribute('href') ? `a[href="${CSS.escape(focus.getAttribute('href'))}"]`
      : focus.parentElement?.id ? `#${CSS.escape(focus.parentElement.id)} > ${focus.tagName}` : null);
  const node = document.importNode(next, true);
  old.replaceWith(node);
  const places = carry(old, node);
  for (const details of $$('details[id]', node)) if (open.has(details.id)) details.open = true;
  localise(node);
  offerCopies(node);
  const place = typing && places.get(typing.key);
  if (place) {
    place.focus({ preventScroll: true });
    if (typeof typing.from === 'number') place.setSelectionRange(typing.from, typing.to);
  } else if (focus) {
    const button = pressed !== null && $$('button', node).find((other) => buttonOf(other) === pressed);
    (button || again && node.querySelector(again))?.focus({ preventScroll: true });
  }
}

function offer() {
  let button = document.getElementById('new');
  if (!waiting.size) { button?.remove(); return; }
  if (!button) {
    button = document.createElement('button');
    button.id = 'new';
    button.className = 'new';
    button.addEventListener('click', () => { waiting.clear(); button.remove(); scrollTo({ top: 0 }); refresh(true); });
    document.getElementById('news').append(button);
  }
  const many = [...waiting.values()].reduce((sum, count) => sum + count, 0);
  button.textContent = many ? `${many} new` : 'Show what has changed';
}

// Nothing moves under the eyes of somebody who has scrolled down: what would push it away waits.
const isAway = () => scrollY > 240;

let fetching = false, wanted = false, last = 0;

// How long the server may take for an answer, and be silent on the stream, which says something every 20 seconds.
const PATIENCE = 15000, SILENCE = 60000;
const ask = (address, options) => fetch(address, { ...options, signal: AbortSignal.timeout?.(PATIENCE) });

// The page is of no use any more: nobody is signed in, or somebody else is. What is typed in it is not thrown away.
const whose = document.body.dataset.whose;
const LEFT = {
  'signed out': 'You are signed out. What you send now leads to the sign-in first: copy what you have typed.',
  'another agent': 'Somebody is signed in as another agent in this browser. What you have typed is not sent: copy it, and reload the page.',
};
let over = '';
function leave(word) {
  if (over === word) return;
  if (!isBusy(document.body)) { location.reload(); return; }
  stay();
  over = word;
  const state = document.getElementById('live');
  state.textContent = word;
  state.className = 'live off';
  const said = document.createElement('p');
  said.id = 'left';
  said.className = 'notice refused';
  said.textContent = LEFT[word];
  document.getElementById('news').append(said);
}
function stay() {
  over = '';
  document.getElementById('left')?.remove();
}

async function refresh(all) {
  if (over) return;
  if (fetching) { wanted = true; return; }
  fetching = true;
  try {
    const response = await ask(at, { headers: { accept: 'text/html' }, redirect: 'manual' });
    // Whoever is not signed in any more is shown so.
    if (response.type === 'opaqueredirect') { leave('signed out'); return; }
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    if (page.body.dataset.whose && page.body.dataset.whose !== whose) { leave('another agent'); return; }
    about = (page.body.dataset.live ?? '').split(' ').filter(Boolean);
    document.title = page.title;
    // Parts within a part are put in place with it, unless somebody is at work in one of them.
    for (const old of $$('[data-part]')) {
      if (!old.isConnected) continue;
      const next = page.getElementById(old.id);
      if (!next) { if (all || !isBusy(old)) old.remove(); else waiting.set(old.id, 0); continue; }
      if (essence(old) === essence(next)) {
        if (!isBusy(old) && !old.contains(document.activeElement)) {
          const ages = $$(AGES, next);
          for (const [index, age] of $$(AGES, old).entries()) {
            const same = ages[index];
            if (!same || 'clock' in age.dataset || 'local' in age.dataset) continue;
            age.textContent = same.textContent;
            age.className = same.className;
          }
        }
        waiting.delete(old.id);
      } else if (!all && isBusy(old)) {
        const inner = (part) => $$('[data-part]', part).map((within) => within.id).join();
        if (!inner(old) || inner(old) !== inner(next)) waiting.set(old.id, fresh(old, next));
      } else if (!all && isAway() && 'rows' in old.dataset && fresh(old, next)) {
        waiting.set(old.id, fresh(old, next));
      } else {
        put(old, next);
        waiting.delete(old.id);
      }
    }
    localise(document);
    offer();
  } catch { /* The stream says whether the server is there. */ } finally {
    fetching = false;
    last = Date.now();
    if (wanted) { wanted = false; soon(); }
  }
}

// How many things wait stands in the title of every page, whatever the page is about.
const counted = () => document.getElementById('waiting-count')?.textContent ?? '';
function count(said) {
  const before = counted();
  if (said === before) return;
  const title = before && document.title.startsWith(`(${before}) `) ? document.title.slice(before.length + 3) : document.title;
  document.title = said ? `(${said}) ${title}` : title;
  document.getElementById('waiting-count').textContent = said;
}

// Who wants to is told by the browser when more waits than before; what waits is only counted.
const able = 'Notification' in window;
function notify(said) {
  if (!able || Notification.permission !== 'granted' || localStorage.notify !== 'on' || !document.hidden) return;
  // Some browsers on phones have them, and refuse to make one.
  try { new Notification('Handover', { body: `${said} waiting for you`, tag: 'handover' }); } catch { /* Not here. */ }
}
function offerNotifications() {
  const place = document.getElementById('notify');
  if (!place || !able) return;
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
  place.append(button);
}

// At most one look a second, however much happens.
let timer = 0;
function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(false); }, Math.max(100, last + 1000 - Date.now()));
}

function happened(task) {
  if (task === '*' || about.includes('all') || about.includes(task)) soon();
}

// One stream for all pages of a browser: browsers open few connections. Whoever has the lock listens and tells the others.
function listen() {
  const state = document.getElementById('live');
  // What happened after the page was made, and before it was told of anything, is found by one more look.
  let looked = !about.length;
  const show = (word) => {
    if (over) return;
    state.textContent = word;
    state.className = word === 'live' ? 'live on' : 'live off';
    if (word === 'live' && !looked) { looked = true; soon(); }
  };
  const channel = new BroadcastChannel('handover-live');
  let alive = '', heard = '', listener = '';
  // Whoever signs in as somebody else in one page of a browser does so in all.
  const meet = (mark) => {
    if (!mark || !whose) return;
    if (mark === whose) stay();
    else leave('another agent');
  };
  channel.onmessage = ({ data }) => {
    meet(data.whose);
    if (data.state) show(data.state);
    if (data.heard) heard = data.heard;
    if (data.task) happened(data.task);
    if ('count' in data) count(data.count);
    if (data.ask && alive) channel.postMessage({ state: alive, heard, whose: listener });
  };
  show('reconnecting');
  channel.postMessage({ ask: true });
  const lead = () => new Promise(() => {
    let lost = null, late = 0;
    const tell = (word) => { alive = word; show(word); channel.postMessage({ state: word, heard, whose: listener }); };
    // Of what other pages show, and of what none does, it is counted how much waits: at most once a second for all pages.
    let known = parseInt(counted(), 10) || 0, asking = 0, asked = 0;
    const look = async () => {
      asking = 0;
      asked = Date.now();
      try {
        const response = await ask('/count');
        if (!response.ok) return;
        const { waiting: said } = await response.json();
        count(said);
        channel.postMessage({ count: said });
        const now = parseInt(said, 10) || 0;
        if (now > known) notify(said);
        known = now;
      } catch { /* The stream says whether the server is there. */ }
    };
    const asks = () => { asking ||= setTimeout(look, Math.max(0, asked + 1000 - Date.now())); };
    const all = () => { happened('*'); channel.postMessage({ task: '*' }); };
    const open = () => {
      // Who takes over goes on where the last one was.
      const stream = new EventSource(heard ? `/live?after=${heard}` : '/live');
      const missed = heard;
      // A connection that is gone without a word looks as one does on which nothing happens: the server says that it is there.
      let said = Date.now();
      const watch = setInterval(() => {
        if (Date.now() - said < SILENCE) return;
        stream.close();
        stream.onerror();
      }, 5000);
      stream.addEventListener('ping', () => { said = Date.now(); });
      stream.addEventListener('hello', ({ data, lastEventId }) => {
        const hello = JSON.parse(data);
        said = Date.now();
        heard = lastEventId;
        listener = hello.whose;
        clearTimeout(late);
        meet(hello.whose);
        tell('live');
        // What happened while nobody listened follows, unless the server could not go on from there.
        if ((lost || missed) && !hello.resumed) { all(); asks(); }
        lost = null;
      });
      stream.addEventListener('changed', ({ data, lastEventId }) => {
        const { task } = JSON.parse(data);
        said = Date.now();
        heard = lastEventId;
        happened(task);
        channel.postMessage({ task, heard });
        asks();
      });
      stream.onerror = () => {
        if (!lost) {
          lost = new Date();
          listener = '';
          tell('reconnecting');
          late = setTimeout(() => tell(`since ${clock(lost).slice(0, 5)}`), 10000);
        }
        if (stream.readyState !== EventSource.CLOSED) return;
        // The server says no, or nothing: whoever is not signed in any more sees so by looking.
        clearInterval(watch);
        all();
        setTimeout(open, 5000);
      };
    };
    open();
  });
  if (navigator.locks) navigator.locks.request('handover-live', lead); else lead();
}

// Ids and commands are copied by a click on their button.
document.addEventListener('click', (event) => {
  const button = event.target.closest?.('button[data-copy]');
  const text = button && (button.dataset.copy || button.previousElementSibling.textContent);
  const copied = () => { button.title = 'Copied'; if (!button.dataset.copy) button.textContent = 'Copied'; };
  if (text && navigator.clipboard) navigator.clipboard.writeText(text).then(copied, () => {});
});
function offerCopies(root) {
  for (const text of $$('pre[data-copy]', root)) {
    if (!navigator.clipboard || text.nextElementSibling?.matches('button[data-copy]')) continue;
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.copy = '';
    button.textContent = 'Copy';
    text.after(button);
  }
}

// A form is sent once.
document.addEventListener('submit', (event) => {
  if (event.target.method !== 'post') return;
  if (over === 'another agent') { event.preventDefault(); return; }
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

// On a phone the columns of a task are tabs.
function turn(tab) {
  const columns = document.querySelector('.columns');
  if (!columns || !tab) return;
  columns.dataset.tab = tab.hash.slice(1);
  for (const other of $$('[data-tab]')) if (other !== columns) {
    if (other === tab) other.setAttribute('aria-current', 'true');
    else other.removeAttribute('aria-current');
  }
}
document.addEventListener('click', (event) => {
  const tab = event.target.closest?.('a[data-tab]');
  if (tab) { event.preventDefault(); turn(tab); }
});
turn(document.querySelector(`a[data-tab][href="${location.hash === '#acts' || document.querySelector('#acts [data-typed]') ? '#acts' : '#timeline'}"]`));

localise(document);
offerCopies(document);
if (document.getElementById('live')) {
  listen();
  offerNotifications();
  // Of tasks under this one that others delegated, the stream says nothing to whoever only follows this one.
  let looks = 0;
  const often = () => document.querySelector('[data-often]') || ++looks % 12 === 0;
  if (about.length) setInterval(() => { if (!document.hidden && often()) soon(); }, 5000);
}
