// Drives isomorphic-git: isomorphic.mjs <directory of node_modules> <url>. Prints refs, oids and what was refused; times and
// names are fixed, so what is printed must not depend on the server.
import fs from "node:fs";
import { createRequire } from "node:module";

const [, , modules, url] = process.argv;
const require = createRequire(modules + "/");
const git = require("isomorphic-git");
const http = require("isomorphic-git/http/node");

const author = { name: "A", email: "a@example.com", timestamp: 1700000000, timezoneOffset: 0 };
const work = { fs, gitdir: "work.git" };

async function commit(repository, ref, parent, files) {
  const entries = [];
  for (const [path, text] of Object.entries(files)) {
    const oid = await git.writeBlob({ ...repository, blob: Buffer.from(text) });
    entries.push({ mode: "100644", path, oid, type: "blob" });
  }
  const tree = await git.writeTree({ ...repository, tree: entries });
  const made = { ...repository, tree, parent, author, committer: author, message: "m\n" };
  const oid = await git.commit({ ...made, ref: "refs/heads/unused", noUpdateBranch: true });
  await git.writeRef({ ...repository, ref, value: oid, force: true });
  return oid;
}

async function push(repository, options) {
  try {
    const result = await git.push({ ...repository, http, url, ...options });
    return Object.entries(result.refs).map(([ref, { ok }]) => `${ref} ${ok}`).join(", ");
  } catch (error) {
    return error.code;
  }
}

async function show(what, repository) {
  const refs = [];
  for (const ref of await git.listRefs({ ...repository, filepath: "refs" })) {
    refs.push(`${ref} ${await git.resolveRef({ ...repository, ref: `refs/${ref}` })}`);
  }
  console.log(what, refs.join(", "));
}

async function shallow(repository) {
  try {
    return fs.readFileSync(`${repository.gitdir}/shallow`, "utf8").trim().split("\n").sort().join(" ");
  } catch {
    return "nothing";
  }
}

await git.init({ ...work, bare: true, defaultBranch: "main" });
const many = {};
for (let number = 0; number < 200; number++) many[`file${number}`] = `${number}\n`.repeat(200);
const one = await commit(work, "refs/heads/main", [], { a: "1\n" });
const two = await commit(work, "refs/heads/main", [one], many);
await git.annotatedTag({ ...work, ref: "t", object: two, tagger: author, message: "tag\n" });
console.log("push:", await push(work, { ref: "main", remoteRef: "refs/heads/main" }));
console.log("push:", await push(work, { ref: "main", remoteRef: "refs/heads/side" }));
console.log("push:", await push(work, { ref: "t", remoteRef: "refs/tags/t" }));
for (const protocolVersion of [1, 2]) {
  const listed = await git.listServerRefs({ http, url, protocolVersion, symrefs: true, peelTags: true });
  for (const { ref, oid, target, peeled } of listed) console.log(`v${protocolVersion}`, ref, oid, target, peeled);
}
console.log("prefix:", (await git.listServerRefs({ http, url, prefix: "refs/tags/" })).map(({ ref }) => ref).join());

const late = { fs, gitdir: "late.git" };
await git.clone({ ...late, http, dir: "late.git", url, noCheckout: true, singleBranch: false });
await show("cloned:", late);
const three = await commit(work, "refs/heads/main", [two], { b: "3\n" });
console.log("push:", await push(work, { ref: "main", remoteRef: "refs/heads/main" }));
console.log("delete:", await push(work, { ref: "main", remoteRef: "refs/heads/side", delete: true }));
await git.fetch({ ...late, http, url, remote: "origin", singleBranch: false, prune: true, tags: true });
await show("fetched:", late);
console.log((await git.readCommit({ ...late, oid: three })).commit.parent.join());

const other = await commit(work, "refs/heads/other", [one], { c: "4\n" });
console.log("not forced:", await push(work, { ref: "other", remoteRef: "refs/heads/main" }));
console.log("forced:", other, await push(work, { ref: "other", remoteRef: "refs/heads/main", force: true }));

const thin = { fs, gitdir: "thin.git" };
await git.clone({ ...thin, http, dir: "thin.git", url, noCheckout: true, singleBranch: true, depth: 1 });
console.log("depth 1:", await shallow(thin));
await git.fetch({ ...thin, http, url, remote: "origin", depth: 1, relative: true, singleBranch: true });
console.log("one more:", await shallow(thin));
