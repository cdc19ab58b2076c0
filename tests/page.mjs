// The page in a real browser, from a real site: what it looks like to a screen reader, to a keyboard and to
// a narrow window, and what it does when the site is gone. `.ci/page` installs what this needs and runs it.
//
// CONSIGN names the binary, CHROMIUM the browser, PAGE_MODULES the folder with playwright-core and axe-core,
// PAGE_SHOTS a folder for pictures.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { cleanUp, network, pageLink, until } from './page/sites.mjs';

const modules = createRequire(join(process.env.PAGE_MODULES ?? process.cwd(), 'package.json'));
const { chromium } = modules('playwright-core');
const axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa', 'best-practice'];
const LOOKS = ['light', 'dark'].flatMap((theme) => [390, 1280].map((width) => ({ theme, width })));

const began = Date.now();
const done = (what) => console.log(`${((Date.now() - began) / 1000).toFixed(1).padStart(5)} s  ${what}`);

// A page whose console, requests and failures are kept.
async function open(browser, home, { theme = 'light', width = 1280 } = {}, target = home) {
  const context = await browser.newContext({ colorScheme: theme, viewport: { width, height: 900 } });
  const page = await context.newPage();
  const heard = { errors: [], hosts: new Set(), polls: 0 };
  page.on('console', (said) => { if (['error', 'warning'].includes(said.type())) heard.errors.push(said.text()); });
  page.on('pageerror', (why) => heard.errors.push(String(why)));
  page.on('request', (request) => { if (!request.url().startsWith('data:')) heard.hosts.add(new URL(request.url()).host); });
  page.on('response', (response) => { if (response.url().endsWith('/v1/status')) heard.polls += 1; });
  await page.goto(target);
  await page.locator('#peers-rows tr').first().waitFor({ timeout: 10_000 }).catch((why) => {
    throw new Error(`the page shows no peers: ${heard.errors.join(' | ')}`, { cause: why });
  });
  return { page, heard, context };
}

const text = (page, selector) => page.locator(selector).innerText();
const focused = (page) => page.evaluate(() => {
  const at = document.activeElement;
  return at === document.body ? '' : at.id || at.innerText;
});
const polls = ({ heard }, more) => { const from = heard.polls; return until(`${more} polls`, () => heard.polls >= from + more); };

async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate((values) => window.axe.run(document, { runOnly: { type: 'tag', values } }), RULES);
  const told = violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.map((n) => n.html.slice(0, 160)).join('\n  ')}`);
  assert.deepEqual(told, [], `axe, ${where}`);
  assert.ok(passes.length > 25, `${passes.length} rules pass, ${where}`);
  return passes.length;
}

async function shot(page, name) {
  if (process.env.PAGE_SHOTS) await page.screenshot({ path: join(process.env.PAGE_SHOTS, `${name}.png`), fullPage: true });
}

function quiet({ heard }, home) {
  assert.deepEqual(heard.errors, [], 'the console says nothing');
  assert.deepEqual([...heard.hosts], [new URL(home).host], 'only the site is asked');
}

async function looks(browser, home) {
  for (const look of LOOKS) {
    const where = `${look.theme} at ${look.width} px`;
    const seen = await open(browser, home, look);
    const { page } = seen;
    await polls(seen, 1);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= look.width, `${wide} px of page, ${where}`);
    for (const part of await page.locator('button, table, section, h1').all()) {
      const box = await part.boundingBox();
      assert.ok(!box || (box.x >= 0 && box.x + box.width <= look.width), `inside the window, ${where}`);
    }
    const rules = await accessible(page, where);
    await shot(page, `${look.theme}-${look.width}`);
    quiet(seen, home);
    await seen.context.close();
    done(`${where}: ${rules} rules pass, none is violated`);
  }
}

async function words(browser, home) {
  const seen = await open(browser, home);
  const { page } = seen;
  await polls(seen, 2);
  assert.match(await text(page, '#sentence'), /^delta has been down for \d+ (s|min), 5 segments wait\.$/);
  assert.equal(await text(page, '#f-peers'), '3 of 4');
  assert.equal(await text(page, '#f-waiting'), '5');
  assert.equal(await text(page, '#f-delivered'), '5');
  assert.equal(await text(page, '#f-dead'), '4');
  const rows = (await page.locator('#peers-rows tr').allInnerTexts()).map((row) => row.replace(/\s+/g, ' '));
  assert.match(rows.join('\n'), /beta .*● up.*\ngamma .*● up .*▲ 3 879 KiB.*\ndelta .*▼ down 5 .* (?:in \d+ s|now) .*\nepsilon .*● up .*▲ 1/);
  const groups = (await page.locator('#dead-rows tr').allInnerTexts()).map((row) => row.replace(/\s+/g, ' '));
  assert.match(groups[0], /^Retry 1 dead letter to epsilon: rejected: too large rejected: too large epsilon 1 1.9 MiB /);
  assert.match(groups[1], / raise storage.max_segment at gamma consign deadletter retry --peer gamma --reason too_large/);
  const shards = (await page.locator('#shards li').allInnerTexts()).map((box) => box.replace(/\s+/g, ' '));
  assert.equal(shards.length, 7);
  assert.match(shards[2], /waiting 3 .*RELAY_BUFFERED/);
  assert.match(await text(page, '#flow'), /(delivered|that this page has watched)/);
  assert.match(await page.title(), /^▲ alpha · Consign$/);
  // Who came without a link is told how to get one, and nothing is asked of the site.
  const retry = page.locator('#dead-rows button').first();
  assert.equal(await retry.getAttribute('aria-disabled'), 'true');
  await retry.click({ force: true });   // it says that it is disabled, and explains itself
  assert.match(await text(page, '[role=status]'), /^This page only looks\. .*consign page/);
  quiet(seen, home);
  await seen.context.close();
  done('the words are right, and nothing can be done without a link');
}

// The real answer of the site, with something changed in it, and the sentence that comes of it.
const CHANGES = [
  [(s) => { s.peers = []; }, 'good', 'All is well: this site has no peers yet.'],
  [(s) => { s.peers = s.peers.slice(0, 1); }, 'good', 'All is well: beta is connected, nothing waits.'],
  [(s) => { s.peers = s.peers.slice(0, 1); s.peers[0].sending.count = 1; }, 'good', 'All is well: beta is connected, 1 delivery is on the way.'],
  [(s) => { s.peers = [s.peers[0], { ...s.peers[2], queued: s.peers[0].queued, backing_off: s.peers[0].queued }]; }, 'good',
    'All is well: nothing waits; delta is not connected, and nothing waits for it.'],
  [(s) => { s.peers = [{ ...s.peers[2], down_since: null }]; s.up_seconds = 3; }, 'good', 'All is well: this site has just started and dials its peers.'],
  [(s) => { s.peers = [{ ...s.peers[2], down_since: null }]; s.up_seconds = 720; }, 'warn',
    'delta has not been reached since this site started 12 min ago, 5 segments wait.'],
  [(s) => { s.peers = [{ ...s.peers[2], held: true }]; }, 'warn', 'delta is held by an operator, 5 segments wait.'],
  [(s) => { s.peers = [{ ...s.peers[2], known: false, address: '' }]; }, 'warn', '5 segments wait for delta, which is not configured any more.'],
  [(s) => { s.peers = [{ ...s.peers[2], opens_at: new Date(Date.now() + 7.5e6).toISOString() }]; }, 'good', 'All is well: 5 deliveries are on the way; delta is not connected.'],
  [(s) => { s.peers = [{ ...s.peers[0], needs_rekey: true }]; }, 'bad', 'beta shows another certificate than the one it is known by.'],
  [(s) => { s.peers = [s.peers[1]]; }, 'warn', '3 dead letters wait for a decision.'],
  [(s) => { s.storage.full = true; }, 'bad', 'Storage is full: new segments are refused until there is room again.'],
  [(s) => { s.scrub.damaged = 2; }, 'bad', 'The content of 2 segments is damaged or gone.'],
  [(s) => { s.peers = []; s.certificates[0].expires_seconds = Date.now() / 1000 + 3.25 * 86400; }, 'warn', "This site's certificate expires in 3 d."],
  [(s) => { s.peers = []; s.certificates[0].expires_seconds = 1; }, 'bad', "This site's certificate has expired."],
  [(s) => { s.peers = []; s.stopping = true; }, 'warn', 'The site is stopping: what is in flight is finished first.'],
];

async function sentences(browser, home) {
  const context = await browser.newContext({ viewport: { width: 390, height: 900 } });
  const page = await context.newPage();
  const real = JSON.stringify(await (await fetch(`${home}/v1/status`)).json());
  let change = CHANGES[0][0];
  await page.route(/\/v1\/(status|peers)$/, async (route) => {
    const status = JSON.parse(real);
    change(status);
    if (status.peers.length === 0) {
      status.pickup.clients = 0;
      for (const count of Object.values(status.pickup.shards)) count.count = 0;
    }
    await route.fulfill({ json: route.request().url().endsWith('peers') ? { peers: status.peers } : status });
  });
  for (const [next, level, sentence] of CHANGES) {
    change = next;
    await page.goto(home);
    await until(sentence, async () => (await text(page, '#sentence')) !== 'Asking the site…');
    assert.equal(await text(page, '#sentence'), sentence);
    assert.equal(await page.locator('#health').getAttribute('class'), `health ${level}`);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, sentence);
    if (sentence.includes('no peers')) {
      for (const empty of ['#peers-empty', '#dead-empty', '#pickup-empty']) assert.ok(await page.locator(empty).isVisible(), empty);
      await accessible(page, 'with nothing to show');
      await shot(page, 'nothing');
    }
  }
  await context.close();
  done(`${CHANGES.length} states have their sentence`);
}

async function keyboard(browser, { alpha, gamma, home }) {
  const link = pageLink(alpha);
  assert.match(link, new RegExp(`^${home}/#token=[0-9a-f]{64}$`));
  const seen = await open(browser, home, {}, link);
  const { page } = seen;
  await until('the page may act', () => page.evaluate(() => sessionStorage.getItem('consign.page')));
  assert.equal(page.url(), `${home}/`, 'the code is out of the address');
  await page.reload();
  await page.locator('#dead-rows tr').nth(1).waitFor();
  const again = await open(browser, home, {}, link);
  assert.match(await text(again.page, '[role=status]'), /^This link does not open: this link was used/);
  assert.equal(await again.page.evaluate(() => sessionStorage.getItem('consign.page')), null);
  await again.context.close();

  // Raised at gamma, as the page says; then by keyboard alone.
  await gamma.end();
  await gamma.serve({ CONSIGN_STORAGE_MAX_SEGMENT: '1MiB' });
  await page.evaluate(() => document.activeElement.blur());
  let tabs = 0;
  for (; tabs < 6 && !(await focused(page)).includes('gamma'); tabs += 1) await page.keyboard.press('Tab');
  assert.ok(tabs > 0 && tabs <= 3, `${tabs} tabs to the second Retry`);
  await page.evaluate(() => { document.activeElement.dataset.mine = 'yes'; });
  await polls(seen, 2);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.mine), 'yes', 'focus and its row are kept');
  await page.keyboard.press('Enter');
  await until('the page says what came of it', () => text(page, '[role=status]'));
  assert.match(await text(page, '[role=status]'), /^Queued 3 deliveries \(879 KiB\) to gamma again\.$/);
  await page.locator('#dead-rows tr').nth(1).waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.id), 'dead-title', 'focus is where the row was');
  await accessible(page, 'after a retry');
  await shot(page, 'retried');
  quiet(seen, home);
  const audit = alpha.json('audit').filter((r) => !r.action.startsWith('pickup_'));
  assert.deepEqual(audit.map((r) => [r.who, r.action, r.subject, r.count]),
    [[`page:uid:${process.getuid()}`, 'retry', 'peer=gamma reason=too_large', 3]]);
  await until('gamma has them', () => alpha.status().peers.find((p) => p.name === 'gamma').delivered.count === 3);
  await until('the page shows it', async () => (await text(page, '#f-delivered')) === '8');
  assert.match(await text(page, '#flow'), /^[1-9]\d* delivered in the \d+ s/);
  done(`retried with ${tabs} tabs and Enter; the audit says by whom`);
  return seen;
}

async function hidden(seen) {
  const { page, heard } = seen;
  const turn = (state) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);
  await turn(true);
  await new Promise((ready) => setTimeout(ready, 1000));   // one that was under way
  const before = heard.polls;
  await new Promise((ready) => setTimeout(ready, 2600));
  assert.equal(heard.polls, before, 'nobody looks, nothing is asked');
  await turn(false);
  await polls(seen, 2);
  done('polling rests while the page is hidden');
}

async function gone(seen, { alpha, epsilon, home }) {
  const { page, heard } = seen;
  await alpha.end('SIGKILL');
  await page.locator('#stale').waitFor();
  const banner = await text(page, '[role=alert]');
  assert.match(banner, /^✕ The site does not answer: what you see is from \d\d:\d\d:\d\d \(no connection\)\./);
  assert.match(await page.title(), /^✕ alpha does not answer/);
  await accessible(page, 'while the site is down');
  await shot(page, 'stale');
  const first = Date.now();
  await until('time goes on, the banner stays', async () => Date.now() - first > 3000 && (await text(page, '[role=alert]')) === banner);
  await alpha.serve();
  await page.locator('#stale').waitFor({ state: 'hidden' });
  assert.ok(heard.errors.length > 0 && heard.errors.every((e) => /ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE)/.test(e)), heard.errors.join());
  heard.errors.length = 0;
  done('the banner says so when the site is gone, and goes when it is back');

  // What the page had is from before the restart.
  const retry = page.locator('#dead-rows button').first();
  await retry.click();
  await until('it says so', async () => /^Nothing was queued: this page may not act/.test(await text(page, '[role=status]')));
  assert.equal(await retry.getAttribute('aria-disabled'), 'true');
  assert.ok(heard.errors.every((e) => e.includes('401')), heard.errors.join());
  heard.errors.length = 0;
  await epsilon.end();
  await epsilon.serve({ CONSIGN_STORAGE_MAX_SEGMENT: '10MiB' });
  await page.goto(pageLink(alpha));
  await until('it may act again', async () => (await retry.getAttribute('aria-disabled')) === 'false');
  await retry.focus();
  await page.keyboard.press('Space');
  await page.locator('#dead-empty').waitFor();
  assert.match(await text(page, '[role=status]'), /^Queued 1 delivery \(1\.9 MiB\) to epsilon again\.$/);
  await accessible(page, 'without dead letters');
  await page.setViewportSize({ width: 390, height: 900 });
  await shot(page, 'empty-390');
  quiet(seen, home);
  done('a restart ends what the page may do, another link begins it anew');
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
try {
  const sites = await network();
  done('five sites run, one of them is away');
  if (!process.env.PAGE_BRIEF) await looks(browser, sites.home);
  await words(browser, sites.home);
  await sentences(browser, sites.home);
  const seen = await keyboard(browser, sites);
  await hidden(seen);
  await gone(seen, sites);
  console.log('page: all is well');
} finally {
  await browser.close();
  await cleanUp();
}
