// Runs beside the page where sound is made: gives what it hears as PCM of 16 bits, a tenth of a second at a time.
class Samples extends AudioWorkletProcessor {
  #piece = new Int16Array(sampleRate / 10);
  #length = 0;

  process([[channel = []]]) {
    for (const sample of channel) {
      this.#piece[this.#length++] = Math.max(-1, Math.min(sample, 1)) * 32767;
      if (this.#length < this.#piece.length) continue;
      this.port.postMessage(this.#piece);
      this.#length = 0;
    }
    return true;
  }
}

registerProcessor("samples", Samples);
