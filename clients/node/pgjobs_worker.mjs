// A worker for django-pgjobs in a program for Node.js: it claims jobs over HTTP and reports.
//
//     const worker = new Worker("https://shop.example/pgjobs/api/", token, { slots: 20 });
//     worker.task("shop.tasks.print_label", async (job, orderId) => { ... });
//     await worker.run(); // until SIGTERM, SIGINT or worker.stop()
//
// What a task returns is the result, what it throws the failure. It is called with the job and
// its arguments, those with a name as an object at the end. job.signal is an AbortSignal: give it
// to fetch() and the like, or ask job.check() now and then.
//
// Copy this file: it needs Node.js 18 and nothing else. docs/http-workers.md explains it.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const WAIT_SECONDS = 20; // how long a claim waits on the server for jobs
const CALL_SECONDS = 30; // what a call may take
const LONGEST_REST = 30; // before a call is repeated
const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds
const MOST_JOBS = 100; // in one claim
const MOST_OUTCOMES = 500; // in one report

/** Throw it in a task: this attempt has failed, begin another one after so many seconds. */
export class Retry extends Error {
  name = "Retry";
  constructor(message = "", { after } = {}) {
    super(message);
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

/** The server answered with a problem (RFC 9457). */
export class Refused extends Error {
  name = "Refused";
  constructor(status, problem, retryAfter) {
    super(`${status} ${problem.title} ${problem.errors ? JSON.stringify(problem.errors) : ""}`.trim());
    const isOurs = `${problem.type}`.startsWith("urn:pgjobs:problem:"); // or of a proxy
    this.isGone = isOurs && problem.type.endsWith(":worker-gone");
    this.isForGood = status === 401 || status === 403;
    this.mayPass = status === 429 || status >= 500 || (!isOurs && status !== 413);
    this.retryAfter = Number(retryAfter) || 0;
  }
}

/** What a task is called with first: what the server tells of the job, and its signal. */
class Job {
  #controller = new AbortController();

  constructor(fields) {
    Object.assign(this, fields); // assignment, job, task, attempt, metadata, ...
    this.said = null;
    this.cancelled = null; // why
    this.signal = this.#controller.signal;
    if (fields.seconds_left !== null) {
      const left = Math.min(fields.seconds_left * 1000, LONGEST_TIMER);
      this.timer = setTimeout(() => this.cancel("timed_out"), left);
    }
  }

  /** Say how far it is; the next heartbeat tells the server. */
  progress(done, total = undefined, message = "") {
    this.said = { done, total, message: clean(message, 500) };
  }

  check() {
    this.signal.throwIfAborted();
  }

  cancel(reason) {
    this.cancelled = reason === "lost" ? reason : (this.cancelled ?? reason);
    this.#controller.abort(new Cancelled(reason));
  }
}

/**
 * Claims jobs of its tasks and runs `slots` of them at a time.
 *
 * Once it is stopped, running jobs have `grace` seconds to end.
 */
export class Worker {
  #url;
  #headers;
  #about;
  #slots;
  #grace;
  #tasks = new Map();
  #worker = null;
  #interval = 60;
  #claiming = new AbortController();
  #jobs = new Map(); // from their claim to the answer to their report
  #running = 0;
  #outcomes = [];
  #isQuiet = false;
  #stopping = new AbortController();
  #finished = new AbortController();
  #listeners = []; // of changes of the above
  #trouble = null;

  constructor(url, token, { name, queues, slots = 1, grace = 30 } = {}) {
    this.#url = `${url.replace(/\/+$/, "")}/v1/`;
    this.#headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    this.#about = { name: name ?? hostname(), slots, ...(queues && { queues }) };
    this.#slots = slots;
    this.#grace = grace;
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

  /** Work until stopped; throw Refused if the token does not allow it. */
  async run() {
    const stop = () => this.stop();
    for (const name of ["SIGTERM", "SIGINT"]) process.on(name, stop);
    const ends = [
      this.#repeat(() => this.#report(), this.#finished.signal),
      this.#beatAlways(),
    ];
    await this.#repeat(() => this.#claim(), this.#stopping.signal);
    await this.#leave();
    await Promise.all(ends);
    for (const name of ["SIGTERM", "SIGINT"]) process.off(name, stop);
    if (this.#trouble) throw this.#trouble;
  }

  async #call(method, path, body, seconds = CALL_SECONDS, controller = new AbortController()) {
    const { signal } = controller;
    const text = body && JSON.stringify(body);
    const request = { method, headers: this.#headers, body: text, redirect: "manual", signal };
    const send = () => fetch(this.#url + path, request);
    const timer = setTimeout(() => controller.abort(new Error("no answer")), seconds * 1000);
    try {
      // Once more at once: the connection may have been closed since the last call.
      const answer = await send().catch((error) => {
        if (error.name !== "TypeError") throw error;
        return send();
      });
      if (answer.ok) return answer.status === 204 ? null : await answer.json();
      const problem = await answer.json().catch(() => ({ title: "not an answer of pgjobs" }));
      throw new Refused(answer.status, problem, answer.headers.get("Retry-After"));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Take a step after the other, those that fail after a longer and longer rest. */
  async #repeat(step, until) {
    let failures = 0;
    while (!until.aborted) {
      let rest;
      try {
        rest = await step();
        failures = 0;
      } catch (error) {
        if (until.aborted) return;
        if (error instanceof Refused && !error.mayPass) {
          this.#trouble = error;
          return this.stop();
        }
        console.warn(`pgjobs: a call failed: ${error.message}`);
        rest = Math.min(LONGEST_REST, 0.1 * 2 ** failures) * (0.5 + Math.random() / 2);
        rest = Math.max(rest, error.retryAfter ?? 0);
        failures += 1;
      }
      if (rest) await pause(rest, until);
    }
  }

  /** Take jobs when there is room, and return for how long to rest. */
  async #claim() {
    const hasRoom = () =>
      !this.#isQuiet && this.#running < this.#slots && this.#outcomes.length < MOST_OUTCOMES;
    await this.#until(() => hasRoom() || this.#stopping.signal.aborted);
    if (this.#stopping.signal.aborted) return 0;
    if (this.#worker === null) {
      const answer = await this.#call("POST", "workers", {
        ...this.#about,
        tasks: [...this.#tasks.keys()],
      });
      [this.#worker, this.#interval] = [answer.worker, answer.heartbeat_seconds];
      this.#tell();
    }
    const body = {
      max_jobs: Math.min(MOST_JOBS, this.#slots - this.#running),
      wait: WAIT_SECONDS,
      held: [...this.#jobs.keys()], // other running ones are given again: that answer was lost
    };
    const worker = this.#worker;
    const path = `workers/${worker}/claim`;
    const seconds = WAIT_SECONDS + CALL_SECONDS;
    const controller = (this.#claiming = new AbortController());
    if (this.#stopping.signal.aborted) return 0;
    let answer;
    try {
      answer = await this.#call("POST", path, body, seconds, controller);
    } catch (error) {
      this.#beginAnew(error, worker);
      return 0;
    }
    for (const fields of answer.assignments) {
      if (!this.#jobs.has(fields.assignment)) this.#work(new Job(fields));
    }
    return answer.retry_after ?? 0;
  }

  async #work(job) {
    this.#jobs.set(job.assignment, job);
    this.#running += 1;
    const outcome = await this.#outcomeOf(job);
    clearTimeout(job.timer);
    this.#running -= 1;
    if (job.cancelled === "lost") this.#jobs.delete(job.assignment);
    else this.#outcomes.push({ assignment: job.assignment, ...outcome });
    this.#tell();
  }

  async #outcomeOf(job) {
    try {
      const names = Object.keys(job.kwargs).length ? [job.kwargs] : [];
      const result = await this.#tasks.get(job.task)(job, ...job.args, ...names);
      JSON.stringify(result);
      return { result: result ?? null };
    } catch (error) {
      if (job.signal.aborted && ["silence", "shutdown"].includes(job.cancelled)) {
        return { release: true };
      }
      const failure = { error: errorOf(error) };
      if (error instanceof Discard) failure.retry = false;
      if (error instanceof Retry) failure.retry = true;
      if (error instanceof Retry && error.after !== undefined) failure.retry_after = error.after;
      return failure;
    }
  }

  async #report() {
    await this.#until(() => this.#outcomes.length || this.#finished.signal.aborted);
    let batch = this.#outcomes.slice(0, MOST_OUTCOMES);
    let later = [];
    while (batch.length) {
      try {
        const answer = await this.#call("POST", "results", { results: batch });
        later = answer.results.filter(({ status }) => status === "later"); // their rows are locked
      } catch (error) {
        if (!(error instanceof Refused) || error.mayPass || error.isForGood) throw error;
        if (batch.length > 1) {
          batch = batch.slice(0, batch.length / 2); // it does not want one of them
          continue;
        }
        if ("result" in batch[0]) {
          const about = { type: "Refused", message: error.message };
          batch = [{ assignment: batch[0].assignment, error: about, retry: false }];
          continue;
        }
        console.error(`pgjobs: the outcome of a job is refused: ${error.message}`);
      }
      break;
    }
    const done = new Set(batch.map((outcome) => outcome.assignment));
    for (const { assignment } of later) done.delete(assignment);
    this.#outcomes = this.#outcomes.filter((outcome) => !done.has(outcome.assignment));
    for (const assignment of done) this.#jobs.delete(assignment);
    this.#tell();
    return later.length ? 1 : 0;
  }

  /**
   * Tell the server what runs; after two heartbeats that failed, cancel it all.
   *
   * After a third the server gives the jobs to others.
   */
  async #beatAlways() {
    const finished = this.#finished.signal;
    await this.#until(() => this.#worker !== null || finished.aborted);
    for (let missed = 0; !finished.aborted; ) {
      await pause(this.#interval, finished);
      if (finished.aborted || this.#worker === null) continue;
      try {
        await this.#beat();
        missed = 0;
      } catch (error) {
        console.warn(`pgjobs: a heartbeat failed: ${error.message}`);
        missed += 1;
      }
      if (missed >= 2) this.#cancelAll("silence");
    }
  }

  async #beat() {
    const jobs = new Map(this.#jobs);
    const told = [...jobs].filter(([, job]) => job.said !== null);
    const progress = Object.fromEntries(told.map(([name, job]) => [name, job.said]));
    const worker = this.#worker;
    const path = `workers/${worker}/heartbeat`;
    const body = { assignments: [...jobs.keys()], progress };
    let answer;
    try {
      answer = await this.#call("POST", path, body, Math.min(CALL_SECONDS, this.#interval / 4));
    } catch (error) {
      // What a job says may be what is wrong.
      if (error.mayPass === false) for (const job of jobs.values()) job.said = null;
      return this.#beginAnew(error, worker);
    }
    for (const { assignment, reason } of answer.cancel) jobs.get(assignment)?.cancel(reason);
    this.#isQuiet = answer.quiet;
    this.#tell();
    if (answer.stop) this.stop();
  }

  /** Forget everything if the server has given the worker up, and its jobs to others. */
  #beginAnew(error, worker) {
    if (!error.isGone) throw error;
    if (this.#worker !== worker) return; // that was found out before
    this.#cancelAll("lost");
    this.#worker = null;
    this.#jobs.clear();
    this.#outcomes = [];
    this.#claiming.abort(new Error("the worker begins anew")); // it waits for jobs of the old one
  }

  #cancelAll(reason) {
    for (const job of this.#jobs.values()) job.cancel(reason);
  }

  /** Let jobs end, report, and say goodbye: what is left goes to others at once. */
  async #leave() {
    // With a token that is of no use nothing can be reported.
    const hasEnded = () => !this.#running && (!this.#outcomes.length || this.#trouble !== null);
    await this.#untilOr(hasEnded, this.#grace);
    if (!hasEnded()) {
      this.#cancelAll("shutdown");
      await this.#untilOr(hasEnded, 5);
    }
    this.#finished.abort();
    this.#tell();
    if (this.#worker === null) return;
    await this.#call("DELETE", `workers/${this.#worker}`, undefined, 5).catch((error) => {
      console.warn(`pgjobs: no goodbye: ${error.message}`);
    });
  }

  /** Wait until something holds. */
  async #until(holds) {
    while (!holds()) await new Promise((resolve) => this.#listeners.push(resolve));
  }

  async #untilOr(holds, seconds) {
    const enough = new AbortController();
    await Promise.race([this.#until(holds), pause(seconds, enough.signal)]);
    enough.abort();
  }

  #tell() {
    for (const listener of this.#listeners.splice(0)) listener();
  }
}

async function pause(seconds, signal) {
  await sleep(seconds * 1000, null, { signal }).catch(() => {});
}

/** What is kept of an exception. */
function errorOf(error) {
  const { name = "Error", message = `${error}`, stack = "" } = error ?? {};
  return {
    type: clean(name, 200),
    message: clean(message, 10_000),
    traceback: clean(`${stack}`.slice(-100_000), 100_000),
  };
}

/** The beginning of a text, without what no text of PostgreSQL may hold. */
function clean(text, most) {
  return `${text}`.slice(0, most).replace(/\0|\p{Surrogate}/gu, "?");
}
