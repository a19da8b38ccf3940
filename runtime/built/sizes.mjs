// Sizes of open dimensions: `populus build` appends this to populus.mjs for a program that has some. web.py writes what it reads.

class Sizes { // bounds: the least and the greatest of each dimension; inputs, outputs, after: of each axis null or a sum, `after` of states
  constructor(given) {
    Object.assign(this, given);
  }

  dimension(input) { // whose size an input of the program is; undefined: it is the caller's
    return Object.keys(this.bounds).find((d) => `size.${d}` === input);
  }

  #axes(role, name) {
    return (role === "outputs" ? this.outputs : this.inputs)[name] ?? [];
  }

  shape(role, name, most) { // with the texts of open axes
    const axes = this.#axes(role, name);
    return axes.some(Boolean) ? Object.freeze(most.map((n, i) => axes[i]?.text ?? n)) : most;
  }

  guessed(named, expected, length) { // the shape of an array whose only open axis takes what the others leave
    const open = expected.findIndex((n) => typeof n === "string"), rest = product(expected.filter((n) => typeof n === "number"));
    if (expected.filter((n) => typeof n === "string").length > 1 || length % rest)
      throw new Error(`${named} has ${length} elements and no shape; give { data, shape }, the program has [${expected}]`);
    return expected.map((n, i) => (i === open ? length / rest : n));
  }

  value({ terms, text }, at) {
    const atom = ([name, ...sums]) => {
      const numbers = sums.map((sum) => this.value(sum, at));
      if (name === "floordiv" && numbers[1] === 0) throw new Error(`'${text}' divides by 0`);
      return name === "floordiv" ? Math.floor(numbers[0] / numbers[1]) : Math[name](...numbers);
    };
    return terms.reduce((sum, [factor, atoms]) => sum + atoms.reduce((x, a) => x * (typeof a === "string" ? at[a] : atom(a)), factor), 0);
  }

  #checked(named, dimension, n) {
    const [least, most] = this.bounds[dimension];
    if (n < least || n > most) throw new Error(`${named}: dimension '${dimension}' is ${n}; the program was built for ${least} to ${most}`);
  }

  bounded(state, shape) {
    this.#axes("states", state.name).forEach((axis, i) => axis && axis.text in this.bounds && this.#checked(`state '${state.name}'`, axis.text, shape[i]));
  }

  of(inputs, { outputs, states }) { // the sizes of a run, `at`, and the shapes of outputs, and of states after it
    const at = {}, first = {}, present = inputs.map(([t, shape]) => [t, "inputs", shape]);
    present.push(...states.filter((t) => t.now).map((t) => [t, "states", t.now]));
    for (const [t, role, shape] of present)
      this.#axes(role, t.name).forEach((axis, i) => {
        if (!axis || !(axis.text in this.bounds)) return;
        this.#checked(`${role.slice(0, -1)} '${t.name}'`, axis.text, shape[i]);
        if ((at[axis.text] ??= shape[i]) !== shape[i])
          throw new Error(`dimension '${axis.text}' is ${at[axis.text]} in '${first[axis.text]}' and ${shape[i]} in '${t.name}'`);
        first[axis.text] ??= t.name;
      });
    for (const t of states.filter((t) => !t.now)) // begins at 0 where no input tells
      for (const axis of this.#axes("states", t.name))
        if (axis && axis.text in this.bounds && !(axis.text in at)) this.#checked(`state '${t.name}'`, axis.text, (at[axis.text] = 0));
    const missing = Object.keys(this.bounds).find((d) => !(d in at));
    if (missing) throw new Error(`no input has the dimension '${missing}' alone, so its size is not known`);
    const said = ({ text, terms }) => `'${text}' is ${this.value({ text, terms }, at)}`;
    for (const [t, role, shape] of present)
      this.#axes(role, t.name).forEach((axis, i) => {
        if (axis && this.value(axis, at) !== shape[i]) throw new Error(`'${t.name}' has ${shape[i]} elements along '${axis.text}'; ${said(axis)}`);
      });
    for (const [size, most] of this.limits) if (this.value(size, at) > most) throw new Error(`${said(size)}, above its bound ${most}`);
    for (const [a, b] of this.equal) if (this.value(a, at) !== this.value(b, at)) throw new Error(`${said(a)} and ${said(b)}; the model needs them equal`);
    const shapes = new Map();
    for (const [t, axes] of [...outputs.map((t) => [t, this.outputs[t.name]]), ...states.map((t) => [t, this.after[t.name]])]) {
      const shape = t.most.map((n, i) => (axes?.[i] ? this.value(axes[i], at) : n)), d = shape.findIndex((n, i) => n < 0 || n > t.most[i]);
      if (d >= 0) throw new Error(`'${t.name}' would have ${shape[d]} elements along '${axes[d].text}', which is bounded by ${t.most[d]}`);
      shapes.set(t, shape);
    }
    return { at, shapes };
  }
}
