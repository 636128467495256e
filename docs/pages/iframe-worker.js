// Browsers start no workers for pages that are read from the disk. The search runs in a hidden frame there instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.loaded = this.load(url);
    }

    load(url) {
      const script = this.inner.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      const loaded = new Promise((resolve, reject) => { script.onload = resolve; script.onerror = reject; });
      this.inner.document.body.append(script);
      return loaded;
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
