// Real sites for the page to show: the built binary, four peers, dead letters, shards.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const consign = resolve(process.env.CONSIGN ?? 'target/debug/consign');
const folder = mkdtempSync(join(tmpdir(), 'consign-page-'));
const running = new Map();

const quick = {
  ...process.env, NO_COLOR: '1', CONSIGN_LISTEN_WEB: 'off', CONSIGN_LIMITS_BALLAST: '1MiB', CONSIGN_STORAGE_MIN_FREE: '1MiB',
  CONSIGN_RELAY_BACKOFF_INITIAL: '200ms', CONSIGN_RELAY_BACKOFF_MAX: '30s', CONSIGN_LOG_FORMAT: 'text',
};

export async function until(what, is, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const got = await is();
    if (got) return got;
    if (Date.now() > end) throw new Error(`not so after ${seconds} s: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

// A port that is free now.
export function port() {
  return new Promise((done, fail) => {
    const server = createServer().on('error', fail).listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

export class Site {
  constructor(name, port, settings = {}) {
    Object.assign(this, { name, port, dir: join(folder, name), env: { ...quick, ...settings } });
  }

  init(peers, authority) {
    const args = ['init', this.dir, '--name', this.name, '--listen', `127.0.0.1:${this.port}`];
    if (authority) args.push('--ca', authority.dir);
    for (const peer of peers) args.push('--peer', `${peer.name}=127.0.0.1:${peer.port}`);
    execFileSync(consign, args, { env: quick });
  }

  run(...args) {
    return execFileSync(consign, ['-q', '-c', this.dir, ...args], { env: this.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  }

  json(...args) {
    return this.run(...args, '--json').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  }

  status() { return this.json('status')[0]; }

  async serve(settings = {}) {
    Object.assign(this.env, settings);
    const log = openSync(join(folder, `${this.name}.log`), 'a');
    const child = spawn(consign, ['-c', this.dir, 'serve'], { env: this.env, stdio: ['ignore', log, log] });
    running.set(child, child);
    this.child = child;
    await until(`${this.name} is ready`, () => {
      if (child.exitCode !== null) throw new Error(`${this.name} ended: ${readFileSync(join(folder, `${this.name}.log`), 'utf8')}`);
      try { return execFileSync(consign, ['-c', this.dir, 'status'], { env: this.env, stdio: 'pipe' }); } catch { return null; }
    });
  }

  async end(signal = 'SIGTERM') {
    const child = this.child;
    const gone = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    await gone;
    running.delete(child);
  }

  async file(name, size) {
    const path = join(folder, name);
    writeFileSync(path, Buffer.alloc(size, name));
    return path;
  }
}

export async function cleanUp() {
  for (const child of running.keys()) {
    const gone = new Promise((done) => child.once('exit', done));
    if (child.exitCode === null && child.signalCode === null) { child.kill('SIGKILL'); await gone; }
  }
  rmSync(folder, { recursive: true, force: true });
}

// alpha with a page; beta takes everything, gamma and epsilon nothing large, delta was there and is away.
export async function network() {
  const [pa, pb, pg, pd, pe, web, pickup] = await Promise.all(Array.from({ length: 7 }, port));
  const alpha = new Site('alpha', pa, { CONSIGN_LISTEN_WEB: `127.0.0.1:${web}`, CONSIGN_LISTEN_PICKUP: `127.0.0.1:${pickup}` });
  const beta = new Site('beta', pb);
  const small = { CONSIGN_STORAGE_MAX_SEGMENT: '10KiB' };
  const [gamma, delta, epsilon] = [new Site('gamma', pg, small), new Site('delta', pd), new Site('epsilon', pe, small)];
  const far = [beta, gamma, delta, epsilon];
  alpha.init(far);
  for (const site of far) site.init([alpha], alpha);
  await Promise.all([alpha, ...far].map((site) => site.serve()));
  await until('all four are connected', () => alpha.status().peers.every((peer) => peer.up));
  await delta.end('SIGKILL');
  const send = async (name, size, to) => alpha.run('send', await alpha.file(name, size), '--to', to);
  for (let n = 0; n < 3; n += 1) await send(`film-${n}`, 300_000 + n, 'gamma');
  await send('archive.tar', 2_000_000, 'epsilon');
  for (let n = 0; n < 5; n += 1) await send(`photo-${n}.jpg`, 40_000 + n, 'beta,delta');
  await shards(alpha, `http://127.0.0.1:${pickup}`);
  await until('four dead letters', () => alpha.json('deadletter', 'ls').length === 4);
  await until('delta is known to be away', () => alpha.status().peers.some((peer) => peer.name === 'delta' && !peer.up));
  return { alpha, beta, gamma, delta, epsilon, home: `http://127.0.0.1:${web}` };
}

async function shards(alpha, relay) {
  const node = execFileSync(consign, ['node', 'init', join(folder, 'edge'), '--id', 'edge-7', '--relay', relay, '--json'], { env: quick });
  alpha.run('pickup', 'nodes', 'enrol', 'edge-7', '--key', JSON.parse(node).key);
  const token = join(folder, 'app.token');
  writeFileSync(token, alpha.run('pickup', 'clients', 'enrol', 'app'), { mode: 0o600 });
  for (let n = 0; n < 3; n += 1) {
    alpha.run('pickup', 'upload', await alpha.file(`shard-${n}`, 90_000 + n), '--to', relay, '--node', 'edge-7', '--file-id', 'film',
      '--version', String(n + 1), '--token-file', token);
  }
}

export const pageLink = (alpha) => alpha.run('page').trim();
