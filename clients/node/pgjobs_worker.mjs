// A worker for django-pgjobs in a program for Node.js: it claims jobs over HTTP and reports.
//
//     const worker = new Worker("https://shop.example/pgjobs/api/", token, { slots: 20 });
//     worker.task("shop.tasks.print_label", async (job, orderId) => { ... });
//     await worker.run(); // until SIGTERM, SIGINT or worker.stop()
//
// What a task returns is the result, what it throws the failure. It is called with the job and
// its arguments, those with a name as an object at the end; job.args and job.kwargs have both for
// a task that is enqueued either way. job.signal is an AbortSignal: give it to fetch() and the
// like, or ask job.check() now and then.
//
// Copy this file: it needs Node.js 18 and nothing else. docs/http-workers.md explains it.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { debuglog, inspect } from "node:util";

const CALL_SECONDS = 30; // what a call may take
const WAIT_SECONDS = 20; // of them a claim waits on the server for jobs
const MOST_JOBS = 100; // in one claim
const MOST_ASTRAY = 7; // answers of somebody else, from the start on: the address is wrong
const AGAIN_SECONDS = 1; // after which an outcome that was not written is said again

const ADVICE =
  "No pgjobs there. The address is what the project's urls.py gives to " +
  'include("django_pgjobs.http.urls"), such as https://shop.example/pgjobs/api/, without v1/.';

const log = (text) => console.error(`${new Date().toISOString()} pgjobs_worker: ${text}`);
const debug = debuglog("pgjobs_worker"); // NODE_DEBUG=pgjobs_worker

/**
 * Throw it in a task: this attempt has failed, begin another one after so many seconds. With an
 * error as its cause it is reported as that.
 */
export class Retry extends Error {
  name = "Retry";
  constructor(message = "", { after, cause } = {}) {
    super(message, { cause });
    this.after = after;
  }
}

/** Throw it in a task: it has failed, and another attempt would not help. */
export class Discard extends Error {
  name = "Discard";
}

/** What job.check() throws, and what job.signal is aborted with; let it through. */
export class Cancelled extends Error {
  name = "Cancelled";
}

/** What a task is called with first: what the server tells of the job, and its signal. */
class Job {
  #controller = new AbortController();
  signal = this.#controller.signal;
  said = null; // of its progress
  told = null; // what of it the server knows
  outcome = null; // what is to be reported, ...
  reportAt = 0; // ... and when
  cancelled = null; // why

  constructor(fields) {
    Object.assign(this, fields); // assignment, job, task, attempt, metadata, ...
  }

  /** Say how far it is; the next heartbeat, or its end, tells the server. */
  progress(done, total = null, message = "") {
    this.said = { done, total, message };
  }

  /** Throw Cancelled if the job is to end: cancelled, lost, or past its timeout. */
  check() {
    this.signal.throwIfAborted();
  }

  cancel(reason) {
    this.cancelled ??= reason;
    this.#controller.abort(new Cancelled(reason));
  }

  /** Return what is to be reported. */
  async run(task) {
    const left = Math.min((this.seconds_left ?? Infinity) * 1000, 2 ** 31 - 1);
    const timer = setTimeout(() => this.cancel("timed_out"), left);
    try {
      const names = Object.keys(this.kwargs).length ? [this.kwargs] : [];
      return { result: (await task(this, ...this.args, ...names)) ?? null };
    } catch (error) {
      if (["lost", "silence", "shutdown"].includes(this.cancelled)) return { release: true };
      const asks = error instanceof Retry && error.cause instanceof Error;
      const wrong = asks ? error.cause : error;
      const { name: type, message, stack } = wrong instanceof Error ? wrong : Error(inspect(wrong));
      const traceback = asks ? `${stack}\n\n${error.stack}` : stack;
      const failure = { error: { type, message, traceback } };
      if (error instanceof Retry) return { ...failure, retry: true, retry_after: error.after };
      return error instanceof Discard ? { ...failure, retry: false } : failure;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The server answered with a problem, a proxy with an error, or there was no answer (0). */
export class Refused extends Error {
  name = "Refused";
  constructor(status, { type, title, detail, errors }) {
    const words = [`${status || ""} ${title}`, detail, errors && JSON.stringify(errors)];
    super(words.filter((word) => word).join(": ").trim());
    this.isGone = type === "urn:pgjobs:problem:worker-gone";
    const isOurs = Boolean(type?.startsWith?.("urn:pgjobs:problem:"));
    // Else a proxy says so, perhaps of too many requests.
    this.isOfToken = isOurs && [401, 403].includes(status);
    const isClear = isOurs || status === 413;
    this.mayPass = status === 429 || status >= 500 || !isClear;
    // An outage of the server is told so by some proxies, too.
    this.isAstray = !isClear && status > 0 && status < 500 && status !== 429;
  }
}

function jsonOf(body) {
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw new Refused(0, { type: "urn:pgjobs:problem:invalid", title: `no JSON: ${error.message}` });
  }
}

/** Claims jobs of its tasks and runs `slots` of them at a time.
 *
 * Once it is stopped, jobs have `grace` seconds to end. `about` may tell the server a `name`, and
 * `queues` where they are not those of the tasks.
 */
export class Worker {
  #url;
  #headers;
  #about;
  #slots;
  #grace;
  #tasks = new Map();
  #jobs = new Map(); // by assignment, from the claim until it is reported
  #worker = ""; // its id
  #interval = 60; // of its heartbeats
  #heard = 0;
  #isRefused = false;
  #astray = 0;
  #stopping = new AbortController();
  #finished = new AbortController();
  #claiming = new AbortController();
  #listeners = []; // of changes of the above

  constructor(url, token, { slots = 1, grace = 30, ...about } = {}) {
    if (!/^https?:\/\/[^/]/i.test(url)) throw new TypeError(`expected https://host/..., got "${url}"`);
    this.#url = `${url.replace(/\/+$/, "")}/v1/`;
    this.#headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    this.#about = { name: `${hostname()}:${process.pid}`, ...about, slots };
    [this.#slots, this.#grace] = [slots, grace];
  }

  /** Declare what runs the jobs of a task. */
  task(path, run) {
    this.#tasks.set(path, run);
    return this;
  }

  /** Claim no more; run() returns when the jobs have ended. */
  stop() {
    this.#stopping.abort();
    this.#claiming.abort();
    this.#tell();
  }

  /** Work until stopped; log it and let the program's status be 1 if the server does not let it. */
  async run() {
    const names = ["SIGTERM", "SIGINT"];
    const stop = () => {
      for (const name of names) process.off(name, stop); // a second one ends the program at once
      this.stop();
    };
    for (const name of names) process.on(name, stop);
    const ends = [
      this.#repeat(() => this.#claim(), this.#stopping.signal),
      this.#repeat(() => this.#report(), this.#finished.signal),
      this.#repeat(() => this.#beat(), this.#finished.signal),
    ];
    await ends[0];
    await this.#leave();
    await Promise.all(ends);
    for (const name of names) process.off(name, stop);
    if (this.#isRefused) process.exitCode = 1;
  }

  /** Return the object in the answer; throw Refused. */
  async #call(method, path, body, seconds = CALL_SECONDS, ending = new AbortController()) {
    const request = { method, headers: this.#headers, redirect: "manual", signal: ending.signal };
    const options = { ...request, body: body && jsonOf(body) };
    const timer = setTimeout(() => ending.abort(new Error("it took too long")), seconds * 1000);
    try {
      const send = () => fetch(this.#url + path, options);
      // Once more at once: the server may have closed the connection since the last call.
      const answer = await send().catch(send);
      const said = answer.status === 204 ? {} : await answer.json().catch(() => null);
      if (answer.ok && said) return said;
      const title = `is no answer of pgjobs. Is ${this.#url} its address?`;
      throw new Refused(answer.status, said?.title ? said : { ...said, title });
    } catch (error) {
      if (error instanceof Refused) throw error;
      const why = error.cause?.message || error.cause?.code || error.message;
      throw new Refused(0, { title: `no answer from ${this.#url}: ${why}` });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Take a step after the other, those that fail after a longer and longer rest. */
  async #repeat(step, until) {
    for (let failures = 0, rest; !until.aborted; ) {
      const worker = this.#worker;
      try {
        rest = await step();
        failures = 0;
      } catch (error) {
        if (until.aborted) return;
        rest = Math.min(this.#interval / 4, 0.1 * 2 ** failures) * (0.5 + Math.random() / 2);
        failures += 1;
        this.#judge(error, worker, until === this.#stopping.signal);
      }
      if (rest) await sleep(rest * 1000, null, { signal: until }).catch(() => {});
    }
  }

  #judge(problem, worker, isClaim) {
    const isKnown = problem instanceof Refused;
    const title = `no answer of pgjobs: ${problem.message}`;
    const error = isKnown ? problem : new Refused(0, { title });
    log(error.message);
    if (error.isGone && this.#worker === worker) {
      this.#worker = "";
      this.#cancelAll("lost");
    } else if (performance.now() > this.#heard + 2000 * this.#interval) {
      // Two heartbeats have failed. After a third the server gives the jobs to others.
      this.#cancelAll("silence");
    }
    // A refused report or heartbeat is not final: what a job said is to blame.
    const isFinal = isClaim && !(error.mayPass || error.isGone);
    // As long as it has never registered.
    if (isClaim && !this.#heard) this.#astray = error.isAstray ? this.#astray + 1 : 0;
    const isLost = this.#astray >= MOST_ASTRAY;
    if (isLost) log(ADVICE);
    if (!isFinal && !error.isOfToken && !isLost) return;
    this.#isRefused = true;
    this.stop();
  }

  #cancelAll(reason) {
    for (const job of this.#jobs.values()) job.cancel(reason);
  }

  /** Take jobs when there is room, and return for how long to rest. */
  async #claim() {
    const stopping = this.#stopping.signal;
    await this.#until(() => this.#room() > 0 || stopping.aborted);
    if (!this.#worker && !stopping.aborted) await this.#register();
    if (stopping.aborted) return 0;
    const body = {
      max_jobs: Math.min(MOST_JOBS, this.#room()),
      wait: WAIT_SECONDS,
      held: [...this.#jobs.keys()], // other running ones are given again: that answer was lost
    };
    this.#claiming = new AbortController();
    const path = `workers/${this.#worker}/claim`;
    const answer = await this.#call("POST", path, body, CALL_SECONDS, this.#claiming);
    for (const fields of answer.assignments) {
      if (!this.#jobs.has(fields.assignment) && !stopping.aborted) this.#run(new Job(fields));
    }
    return answer.retry_after ?? 0;
  }

  /** Return for how many jobs there are slots. What is only to be said again takes none. */
  #room() {
    const again = [...this.#jobs.values()].filter((job) => job.reportAt > 0).length;
    return this.#slots - this.#jobs.size + Math.min(again, MOST_JOBS);
  }

  async #register() {
    const about = { ...this.#about, tasks: [...this.#tasks.keys()] };
    this.#claiming = new AbortController();
    const answer = await this.#call("POST", "workers", about, CALL_SECONDS, this.#claiming);
    [this.#worker, this.#interval] = [answer.worker, answer.heartbeat_seconds];
    this.#heard = performance.now();
    log(`Registered as worker ${this.#worker}: slots=${this.#slots} tasks=${this.#tasks.size}`);
    this.#tell();
  }

  async #run(job) {
    this.#jobs.set(job.assignment, job);
    debug("Job %s begins: %s", job.job, job.task);
    const outcome = await job.run(this.#tasks.get(job.task));
    debug("Job %s ends", job.job);
    job.outcome = { assignment: job.assignment, ...outcome };
    if (job.said !== job.told) job.outcome.progress = job.said;
    this.#tell();
  }

  /** Tell the server of jobs that have ended. */
  async #report() {
    const ended = [...this.#jobs.values()].filter((job) => job.outcome);
    const isDue = (job) => job.outcome && job.reportAt <= performance.now();
    const due = () => [...this.#jobs.values()].filter(isDue);
    const isOver = () => due().length || this.#finished.signal.aborted;
    await this.#until(isOver, ended.length ? AGAIN_SECONDS : Infinity);
    const outcomes = due().map((job) => job.outcome);
    const said = outcomes.length ? await this.#send(outcomes) : [];
    const later = said.filter(({ status }) => status === "later"); // nothing was written
    const names = later.map(({ assignment }) => assignment);
    for (const { assignment } of outcomes) {
      if (!names.includes(assignment)) this.#jobs.delete(assignment);
      else this.#jobs.get(assignment).reportAt = performance.now() + AGAIN_SECONDS * 1000;
    }
    this.#tell();
    return 0;
  }

  async #send(outcomes) {
    try {
      return (await this.#call("POST", "results", { results: outcomes })).results;
    } catch (error) {
      if (error.mayPass || error.isOfToken) throw error;
      if (outcomes.length > 1) {
        const said = []; // it does not want one of them
        for (const each of outcomes) said.push(...(await this.#send([each])));
        return said;
      }
      const [outcome] = outcomes;
      if (outcome.progress) {
        log(`What a job says at its end is refused: ${error.message}`);
        delete outcome.progress;
        return this.#send([outcome]);
      }
      if (outcome.error?.type === "Refused") {
        log(`The outcome of a job is refused: ${error.message}`);
        return [];
      }
      const about = { type: "Refused", message: error.message };
      const retry = "result" in outcome ? false : outcome.retry;
      return this.#send([{ assignment: outcome.assignment, error: about, retry }]);
    }
  }

  /** Tell the server what runs, hear what is to end, and return for how long to rest. */
  async #beat() {
    await this.#until(() => this.#worker || this.#finished.signal.aborted);
    if (!this.#worker) return 0;
    const jobs = new Map(this.#jobs);
    const progress = {};
    for (const [assignment, job] of jobs) {
      if (job.said !== job.told) progress[assignment] = job.said;
    }
    const path = `workers/${this.#worker}/heartbeat`;
    const body = { assignments: [...jobs.keys()], progress };
    const answer = await this.#call("POST", path, body).catch((error) => {
      if (error.mayPass || !Object.keys(progress).length) throw error;
      // What a job says, again and again, may be wrong; the jobs are worked on all the same.
      log(`What jobs say of their progress is refused: ${error.message}`);
      return this.#call("POST", path, { ...body, progress: {} });
    });
    this.#heard = performance.now();
    for (const [assignment, said] of Object.entries(progress)) jobs.get(assignment).told = said;
    for (const { assignment, reason } of answer.cancel) jobs.get(assignment)?.cancel(reason);
    if (answer.stop) this.stop();
    return this.#interval;
  }

  /** Let jobs end, report, and say goodbye: what is left goes to others at once. */
  async #leave() {
    log(`Stopping: ${this.#jobs.size} jobs have ${this.#isRefused ? 0 : this.#grace} s to end`);
    // With a token that is of no use nothing can be reported.
    const isLeft = (job) => !(this.#isRefused && job.outcome);
    const hasEnded = () => ![...this.#jobs.values()].some(isLeft);
    await this.#until(() => this.#isRefused || hasEnded(), this.#grace);
    if (!hasEnded()) {
      this.#cancelAll("shutdown");
      await this.#until(hasEnded, 5);
    }
    this.#finished.abort();
    this.#tell();
    const goodbye = this.#worker && this.#call("DELETE", `workers/${this.#worker}`, undefined, 5);
    await Promise.resolve(goodbye).catch((error) => log(`No goodbye: ${error.message}`));
    log("Stopped");
  }

  /** Wait until something holds, for so many seconds at most. */
  async #until(holds, seconds = Infinity) {
    let isOver = false;
    const end = () => {
      isOver = true;
      this.#tell();
    };
    const timer = seconds < Infinity && setTimeout(end, seconds * 1000);
    while (!holds() && !isOver) await new Promise((resolve) => this.#listeners.push(resolve));
    clearTimeout(timer);
  }

  #tell() {
    for (const listener of this.#listeners.splice(0)) listener();
  }
}
