// Schemas as zod writes them, each with values that zod accepts: one line of JSON for each.

import { z } from "zod";

const Cat = z.object({ kind: z.literal("cat"), lives: z.int().min(1).max(9) });
const Dog = z.object({ kind: z.enum(["dog", "puppy"]), good: z.boolean() });
const Node = z.object({
  value: z.number(),
  get children() {
    return z.array(Node);
  },
});

const types = {
  string: [z.string(), ["", "mill"]],
  "string with lengths": [z.string().min(2).max(4), ["ab", "abcd"]],
  "regular expression": [z.string().regex(/^[a-z]+-\d{2}$/), ["ab-12"]],
  "start, end, part": [z.string().startsWith("a").endsWith("z").includes("-"), ["a-z", "ab-yz"]],
  email: [z.email(), ["a.b@c.de", "a@b-c.org"]],
  uuid: [z.uuid(), ["123e4567-e89b-42d3-a456-426614174000"]],
  url: [z.url(), ["https://a.example/b"]],
  date: [z.iso.date(), ["2024-02-29"]],
  time: [z.iso.time({ precision: 0 }), []],
  "date and time": [z.iso.datetime(), ["2024-02-29T10:00:00Z"]],
  duration: [z.iso.duration(), ["P1DT2H"]],
  ipv4: [z.ipv4(), ["127.0.0.1"]],
  ipv6: [z.ipv6(), ["::1"]],
  cidrv4: [z.cidrv4(), ["10.0.0.0/8"]],
  hostname: [z.hostname(), ["a.example"]],
  guid: [z.guid(), ["123e4567-e89b-42d3-a456-426614174000"]],
  // No emoji: versions of Unicode differ in Extended_Pictographic.
  cuid2: [z.cuid2(), ["tz4a98xxat96iws9zmbrgj3a"]],
  ulid: [z.ulid(), ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]],
  nanoid: [z.nanoid(), ["V1StGXR8_Z5jdHi6B-myT"]],
  base64: [z.base64(), ["YWJj"]],
  e164: [z.e164(), ["+14155552671"]],
  hex: [z.hex(), ["0aF3"]],
  int: [z.int(), [0, -7, 12]],
  "positive int": [z.int().positive(), [1, 20]],
  "number with bounds": [z.number().gt(0).lte(1), [0.5, 1]],
  // Grammars write 0.5 as 0.50 here.
  "multiple of": [z.number().multipleOf(0.25), [0.75, -1.25, 3]],
  boolean: [z.boolean(), [true, false]],
  null: [z.null(), [null]],
  literal: [z.literal(["a", 1, true]), ["a", 1, true]],
  enum: [z.enum(["red", "blue"]), ["red", "blue"]],
  object: [z.object({ a: z.string(), b: z.int().optional() }), [{ a: "x" }, { a: "x", b: 1 }]],
  "strict object": [z.strictObject({ a: z.string() }), [{ a: "x" }]],
  "loose object": [z.looseObject({ a: z.string() }), [{ a: "x" }, { a: "x", b: [1] }]],
  "catch all": [z.object({ a: z.string() }).catchall(z.int()), [{ a: "x", b: 1 }]],
  "never in an object": [z.object({ a: z.string(), b: z.never().optional() }), [{ a: "x" }]],
  nullable: [z.object({ a: z.string().nullable() }), [{ a: null }, { a: "x" }]],
  "defaults and words": [z.object({ a: z.string().default("x").describe("d").meta({ examples: ["y"] }) }), [{ a: "z" }]],
  array: [z.array(z.int()).min(1).max(3), [[1], [1, 2, 3]]],
  tuple: [z.tuple([z.string(), z.int()]), [["a", 1]]],
  "tuple with rest": [z.tuple([z.string()], z.int()), [["a"], ["a", 1, 2]]],
  record: [z.record(z.string(), z.int()), [{}, { a: 1 }]],
  "record of an enum": [z.partialRecord(z.enum(["a", "b"]), z.int()), [{ a: 1 }]],
  union: [z.union([z.string(), z.int(), Cat]), ["a", 1, { kind: "cat", lives: 9 }]],
  "discriminated union": [
    z.discriminatedUnion("kind", [Cat, Dog]),
    [{ kind: "cat", lives: 1 }, { kind: "puppy", good: true }],
  ],
  "union in an object": [
    z.object({ owner: z.object({ age: z.int() }), pet: z.discriminatedUnion("kind", [Cat, Dog]) }),
    [{ owner: { age: 4 }, pet: { kind: "dog", good: false } }],
  ],
  "one of": [z.xor([z.object({ a: z.string() }), z.object({ b: z.int() })]), [{ a: "x" }, { b: 1 }]],
  intersection: [z.intersection(z.object({ a: z.string() }), z.object({ b: z.int() })), [{ a: "x", b: 1 }]],
  recursive: [Node, [{ value: 1, children: [{ value: 2.5, children: [] }] }]],
  extended: [Cat.extend({ name: z.string() }), [{ kind: "cat", lives: 2, name: "Tom" }]],
};

for (const [name, [type, valid]] of Object.entries(types)) {
  for (const [target, draft] of [["draft-2020-12", "2020-12"], ["draft-7", "7"], ["openapi-3.0", "OpenAPI 3.0"]]) {
    let schema;
    try {
      schema = z.toJSONSchema(type, { target });
    } catch (error) {
      if (target === "openapi-3.0") continue; // It has no tuples.
      throw error;
    }
    const wrong = valid.find((value) => !z.safeParse(type, value).success);
    if (wrong !== undefined) throw new Error(`${name}: zod refuses ${JSON.stringify(wrong)}`);
    console.log(JSON.stringify({ name: `zod, ${name} (${draft})`, dialect: target, schema, valid }));
  }
}
