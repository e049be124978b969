// A browser gives pages opened from a folder no Worker, and the search runs in one. There a hidden frame takes its
// place. (mkdocs-material's plugin for sites without a server asks for a file of this name, and would fetch another.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = () => {} // stemmers of other languages than English
      const script = this.inside.document.createElement("script")
      script.src = address
      script.onload = () => {
        const messages = this.waiting
        this.waiting = null
        messages.forEach(data => this.postMessage(data))
      }
      this.inside.document.body.appendChild(script)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.inside.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}
