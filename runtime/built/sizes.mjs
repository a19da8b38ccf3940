// Sizes of open dimensions: `populus build` appends this to populus.mjs for a program that has some. built_sizes.py writes what it reads.

class Sizes { // of programs, the last of the greatest sizes; of each: bounds of dimensions, and of each axis null or a sum, `after` of states
  #now = 0; #shapes = {}; // of the program that ran last: its number, and those of its states

  constructor(programs, tensors, state, fill) { // `tensors` of all programs by role; `state` and `fill` get and set one
    Object.assign(this, { programs, tensors, state, fill, last: programs.length - 1 });
    this.bounds = {}; // the least and the greatest of each dimension
    for (const { bounds } of programs)
      for (const [d, [least, most]] of Object.entries(bounds)) {
        const [low, high] = (this.bounds[d] ??= [least, most]);
        this.bounds[d] = [Math.min(low, least), Math.max(high, most)];
      }
  }

  of(role, n = this.#now) { // tensors of program `n`
    const kind = ["steps", "inputs", "outputs", "states"].indexOf(role);
    return this.tensors[role].slice(this.programs[n].begins[kind], this.programs[n + 1]?.begins[kind]);
  }

  given(role) { // what the caller knows of: all but the sizes of dimensions
    return this.of(role, this.last).filter((t) => role !== "inputs" || !this.#dimension(t.name));
  }

  #dimension(input) { // whose size an input of the program is; undefined: it is the caller's
    return Object.keys(this.bounds).find((d) => `size.${d}` === input);
  }

  now(t) { // the shape of a state
    return this.#shapes[t.name] ?? t.shape.map((n) => (typeof n === "number" ? n : 0));
  }

  done(shapes) { // of tensors after a run; undefined: before the first one
    this.#shapes = shapes ? Object.fromEntries(this.of("states").map((t) => [t.name, shapes.get(t)])) : {};
  }

  fit(arrays) { // chooses the program for inputs of some sizes, which gets the states; adds the inputs that are sizes
    const names = this.of("states").map((t) => t.name), now = Object.entries(this.#shapes);
    const present = [...[...arrays].map(([name, { shape }]) => ["inputs", name, shape]), ...now.map(([name, shape]) => ["states", name, shape])];
    const { number, at, shapes } = this.#chosen(present, names.filter((name) => !this.#shapes[name]));
    this.#move(number);
    for (const t of this.of("inputs").filter((t) => !arrays.has(t.name)))
      arrays.set(t.name, { array: Int32Array.of(at[this.#dimension(t.name)]), shape: [] });
    return { begin: this.programs[number].begins[0], shapes };
  }

  #move(number) { // takes the states to another program
    if (number === this.#now) return;
    const states = this.of("states").map(({ name }) => this.state(name));
    this.#now = number;
    this.of("states").forEach((t, i) => this.fill(t, { array: states[i], shape: states[i].shape }));
  }

  hold({ name }, shape) { // chooses the program for a state of some size
    this.#axes("states", name).forEach((axis, i) => axis && axis.text in this.bounds && this.#checked(`state '${name}'`, axis.text, shape[i]));
    const shapes = { ...this.#shapes, [name]: shape };
    const holds = (n) => this.of("states", n).every((s) => !shapes[s.name]?.some((k, i) => k > s.most[i]));
    const number = [this.#now, ...this.programs.keys()].find(holds);
    if (number === undefined) throw new Error(`state '${name}' has shape [${shape}], which no program of the build holds`);
    this.#move(number);
    this.#shapes = shapes;
  }

  #axes(role, name, n = this.last) {
    return this.programs[n][role === "outputs" ? "outputs" : "inputs"][name] ?? [];
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

  #chosen(present, states) { // the first program for a run of these [role, name, shape], the sizes `at`, shapes of outputs and of states after it
    const at = {}, first = {};
    for (const [role, name, shape] of present)
      this.#axes(role, name).forEach((axis, i) => {
        if (!axis || !(axis.text in this.bounds)) return;
        this.#checked(`${role.slice(0, -1)} '${name}'`, axis.text, shape[i]);
        if ((at[axis.text] ??= shape[i]) !== shape[i])
          throw new Error(`dimension '${axis.text}' is ${at[axis.text]} in '${first[axis.text]}' and ${shape[i]} in '${name}'`);
        first[axis.text] ??= name;
      });
    for (const name of states) // which begin at 0 where no input tells
      for (const axis of this.#axes("states", name))
        if (axis && axis.text in this.bounds && !(axis.text in at)) this.#checked(`state '${name}'`, axis.text, (at[axis.text] = 0));
    const missing = Object.keys(this.bounds).find((d) => !(d in at));
    if (missing) throw new Error(`no input has the dimension '${missing}' alone, so its size is not known`);
    let refused = new Error(`no program of the build serves ${Object.entries(at).map(([d, n]) => `${d} = ${n}`).join(", ")}`);
    for (const [number, { bounds }] of this.programs.entries())
      if (Object.entries(bounds).every(([d, [least, most]]) => least <= at[d] && at[d] <= most))
        try {
          return { number, at, shapes: this.#after(number, present, at) };
        } catch (error) {
          refused = error;
        }
    throw refused;
  }

  #after(number, present, at) {
    const { limits, equal, outputs: made, after } = this.programs[number], outputs = this.of("outputs", number), states = this.of("states", number);
    const said = ({ text, terms }) => `'${text}' is ${this.value({ text, terms }, at)}`;
    for (const [role, name, shape] of present)
      this.#axes(role, name, number).forEach((axis, i) => {
        if (axis && this.value(axis, at) !== shape[i]) throw new Error(`'${name}' has ${shape[i]} elements along '${axis.text}'; ${said(axis)}`);
      });
    for (const [size, most] of limits) if (this.value(size, at) > most) throw new Error(`${said(size)}, above its bound ${most}`);
    for (const [a, b] of equal) if (this.value(a, at) !== this.value(b, at)) throw new Error(`${said(a)} and ${said(b)}; the model needs them equal`);
    const shapes = new Map();
    for (const [t, axes] of [...outputs.map((t) => [t, made[t.name]]), ...states.map((t) => [t, after[t.name]])]) {
      const shape = t.most.map((n, i) => (axes?.[i] ? this.value(axes[i], at) : n)), d = shape.findIndex((n, i) => n < 0 || n > t.most[i]);
      if (d >= 0) throw new Error(`'${t.name}' would have ${shape[d]} elements along '${axes[d].text}', which is bounded by ${t.most[d]}`);
      shapes.set(t, shape);
    }
    return shapes;
  }
}
