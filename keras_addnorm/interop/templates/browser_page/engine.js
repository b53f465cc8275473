// The engine in its thread: calls of its functions, and their answers.
class Engine {
  static async start(worker, scripts, program) {
    const address = URL.createObjectURL(new Blob([worker], { type: "text/javascript" }));
    const engine = new Engine(new Worker(address));
    try {
      engine.thread.postMessage({ folder: location.href, scripts, program }, [program]);
      await engine.call("initialize", { cacheSize: 0 });
      return engine;
    } catch (error) {
      engine.stop(error.message);
      throw error;
    } finally {
      URL.revokeObjectURL(address);
    }
  }

  constructor(thread) {
    this.thread = thread;
    this.waiting = new Map();
    this.count = 0;
    thread.onmessage = ({ data: { id, result, error } }) => {
      const { accept, refuse } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) accept(result);
      else refuse(new Error(error.message));
    };
    thread.onerror = (event) => {
      event.preventDefault();
      this.stop(event.message || "its thread did not start");
    };
  }

  call(name, ...args) {
    return new Promise((accept, refuse) => {
      const id = ++this.count;
      this.waiting.set(id, { accept, refuse });
      this.thread.postMessage({ id, name, args });
    });
  }

  // Ends the thread; what still waits for an answer gets this reason.
  stop(reason) {
    this.thread.terminate();
    for (const { refuse } of this.waiting.values()) refuse(new Error(reason));
    this.waiting.clear();
  }
}
