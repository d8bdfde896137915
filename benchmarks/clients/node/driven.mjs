// For clients of the command line: they are run without a terminal, and what they ask of the server is watched.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import http from "node:http";
import { setTimeout as pause } from "node:timers/promises";

import { check, NotHere } from "./steps.mjs";

// Where an installed package lies. Native ones are there for this platform, or not at all.
export function installed(name) {
  const folder = new URL(`./node_modules/${name}/`, import.meta.url);
  if (!existsSync(folder)) throw new NotHere(`${name} is not installed here`);
  return folder.pathname;
}

// Runs a program of Node to its end; its output is all that it has.
export async function ran(command, environment = {}, node = process.execPath) {
  const child = spawn(node, command, { env: { ...process.env, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
  const heard = { stdout: "", stderr: "" };
  for (const name of Object.keys(heard)) child[name].on("data", (data) => (heard[name] += data));
  const code = await new Promise((resolve) => child.on("close", resolve));
  check(code === 0, `exit 0, but ${code}: ${(heard.stdout + heard.stderr).slice(-300)}`);
  return heard.stdout;
}

// An address that passes everything on to the server, with `headers` more, and the list of what was asked and answered.
export async function watched(headers = {}) {
  const seen = [];
  const server = http.createServer((request, response) => {
    const body = [];
    request.on("data", (data) => body.push(data));
    request.on("end", () => {
      const options = { method: request.method, headers: { ...request.headers, ...headers } };
      const onward = http.request(new URL(request.url, process.env.PARLANCE_URL), options, (reply) => {
        const asked = { path: request.url, body: Buffer.concat(body).toString() };
        seen.push({ ...asked, status: reply.statusCode, headers: reply.headers });
        response.writeHead(reply.statusCode, reply.rawHeaders);
        reply.pipe(response);
      });
      onward.on("error", () => response.destroy());
      onward.end(Buffer.concat(body));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref(); // it ends with the program
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}

// What was asked at `path`, of which nothing was refused.
export function taken(seen, path) {
  const refused = seen.filter((one) => one.status >= 400).map((one) => `${one.path}: ${one.status}`);
  check(refused.length === 0, `nothing is refused, but ${refused}`);
  const asked = seen.filter((one) => one.path.startsWith(path));
  check(asked.length > 0, `${path} was asked`);
  return asked.map((one) => ({ ...JSON.parse(one.body), replied: one.headers }));
}

// What the key's organisation has spent, and whether it is more soon: a bill is written when its answer is over.
export async function spent() {
  const headers = { authorization: `Bearer ${process.env.PARLANCE_KEY}` };
  const me = await (await fetch(`${process.env.PARLANCE_URL}/v1/me`, { headers })).json();
  return JSON.stringify(me.spend);
}

export async function isCharged(before) {
  for (let tries = 0; tries < 50; tries++) {
    if ((await spent()) !== before) return true;
    await pause(100);
  }
  return false;
}
