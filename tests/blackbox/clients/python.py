"""Drives another implementation of Git through what its users do: python.py pygit2|dulwich <url>, python.py gitoxide <url>
<directory>. For shallow and partial copies of what is there: python.py pygit2-cuts <url>, python.py dulwich-cuts <url> <since>.

Prints refs and oids; what it prints must not depend on the server. Times and names are fixed, so oids are too.
"""

import os
import sys
from importlib import import_module

TIME = 1700000000
# Depth of a whole history, in every implementation.
INFINITE = 0x7FFFFFFF


def run_pygit2(url):
    git = import_module("pygit2")
    author = git.Signature("A", "a@example.com", TIME, 0)

    def commit(repo, ref, parents, files):
        builder = repo.TreeBuilder(repo[parents[0]].tree) if parents else repo.TreeBuilder()
        for name, text in files.items():
            builder.insert(name, repo.create_blob(text.encode()), git.enums.FileMode.BLOB)
        return repo.create_commit(ref, author, author, "m", builder.write(), parents)

    def refused(push):
        problems = []

        class Callbacks(git.RemoteCallbacks):
            def push_update_reference(self, refname, message):
                if message:
                    problems.append(refname)

        try:
            push(Callbacks())
        except git.GitError:
            problems.append("error")
        return bool(problems)

    def push(repo, *specs):
        return refused(lambda callbacks: repo.remotes["origin"].push(list(specs), callbacks=callbacks))

    work = git.init_repository("work.git", bare=True, initial_head="main")
    work.remotes.create("origin", url)
    one = commit(work, "refs/heads/main", [], {"a": "1\n"})
    many = {f"file{number}": f"{number}\n" * 200 for number in range(200)}
    two = commit(work, "refs/heads/main", [one], many)
    work.create_tag("t", two, git.enums.ObjectType.COMMIT, author, "tag")
    print("push refused:", push(work, "refs/heads/main", "refs/tags/t", "refs/heads/main:refs/heads/side"))
    print("cloned:", git.clone_repository(url, "one.git", bare=True).references["refs/heads/main"].target)

    late = git.Repository("one.git")
    three = commit(work, "refs/heads/main", [two], {"b": "3\n"})
    print("push refused:", push(work, "refs/heads/main", ":refs/heads/side"))
    late.remotes["origin"].fetch(["+refs/heads/*:refs/heads/*"], prune=git.enums.FetchPrune.PRUNE)
    print("fetched:", late.references["refs/heads/main"].target == three, sorted(late.references))

    other = commit(late, None, [one], {"c": "4\n"})
    late.references.create("refs/heads/other", other)
    print("not forced, refused:", push(late, "refs/heads/other:refs/heads/main"))
    print("forced, refused:", push(late, "+refs/heads/other:refs/heads/forced"))
    print("again, refused:", push(late, "+refs/heads/main:refs/heads/forced"))


def run_dulwich(url):
    import_module("dulwich")
    from dulwich.client import get_transport_and_path
    from dulwich.objects import Blob, Commit, Tag, Tree
    from dulwich.repo import Repo

    def make(store, parents, files):
        tree = Tree()
        for name, text in files.items():
            blob = Blob.from_string(text.encode())
            store.add_object(blob)
            tree.add(name.encode(), 0o100644, blob.id)
        store.add_object(tree)
        commit = Commit()
        commit.tree, commit.parents, commit.message = tree.id, parents, b"m\n"
        commit.author = commit.committer = b"A <a@example.com>"
        commit.author_time = commit.commit_time = TIME
        commit.author_timezone = commit.commit_timezone = 0
        store.add_object(commit)
        return commit.id

    def push(repo, changes):
        client, path = get_transport_and_path(url)

        def update(refs):
            return changes

        result = client.send_pack(path.encode(), update, repo.generate_pack_data)
        status = result.ref_status or {}
        return sorted((name.decode(), problem) for name, problem in status.items() if problem)

    def fetch(repo):
        client, path = get_transport_and_path(url)
        return client.fetch(path.encode(), repo)

    work = Repo.init_bare("work", mkdir=True)
    files = {f"file{number}": f"{number}\n" * 200 for number in range(200)}
    one = make(work.object_store, [], files)
    two = make(work.object_store, [one], {**files, "a": "2\n"})
    tag = Tag()
    tag.name, tag.object, tag.message = b"t", (Commit, two), b"tag\n"
    tag.tagger, tag.tag_time, tag.tag_timezone = b"A <a@example.com>", TIME, 0
    work.object_store.add_object(tag)
    print("problems:", push(work, {b"refs/heads/main": one, b"refs/heads/side": one}))
    print("problems:", push(work, {b"refs/heads/main": two, b"refs/tags/t": tag.id}))
    copy = Repo.init_bare("copy", mkdir=True)
    for name, oid in sorted(fetch(copy).refs.items()):
        print(name.decode(), oid.decode(), oid in copy.object_store)
    three = make(work.object_store, [two], {**files, "b": "3\n"})
    print("problems:", push(work, {b"refs/heads/main": three, b"refs/heads/side": b"0" * 40}))
    for name, oid in sorted(fetch(copy).refs.items()):
        print(name.decode(), oid.decode(), oid in copy.object_store)


def show_cut(what, tips, boundary, parents_of):
    """Where the history is cut, and all of it that is there: a parent that is neither is an error."""
    seen, left = set(), list(tips)
    while left:
        oid = left.pop()
        if oid not in seen:
            seen.add(oid)
            left += [] if oid in boundary else parents_of(oid)
    print(f"{what}: cut at {' '.join(sorted(boundary))}; commits {' '.join(sorted(seen))}")


def run_pygit2_cuts(url):
    git = import_module("pygit2")

    def show(what):
        # What has been read of a history is kept, also where it has been deepened since.
        repo = git.Repository("shallow.git")
        boundary = set()
        if repo.is_shallow:
            with open("shallow.git/shallow") as file:
                boundary = set(file.read().split())
        tips = {str(ref.peel(git.Commit).id) for ref in repo.references.objects}
        show_cut(what, tips, boundary, lambda oid: [str(parent) for parent in repo[oid].parent_ids])

    git.clone_repository(url, "shallow.git", bare=True, depth=1)
    show("cloned")
    for depth in (3, 8, INFINITE):
        git.Repository("shallow.git").remotes["origin"].fetch(["+refs/*:refs/*"], depth=depth)
        show(f"depth {depth}")


def run_dulwich_cuts(url, since):
    import_module("dulwich")
    from dulwich.client import get_transport_and_path
    from dulwich.object_store import peel_sha
    from dulwich.repo import Repo

    def fetch(name, version, **options):
        repo = Repo(name) if os.path.exists(name) else Repo.init_bare(name, mkdir=True)
        client, path = get_transport_and_path(url)
        refs = client.fetch(path.encode(), repo, protocol_version=version, **options).refs
        for ref, oid in refs.items():
            if ref.startswith(b"refs/") and not ref.endswith(b"^{}"):
                repo.refs[ref] = oid
        return repo, sorted(oid for oid in refs.values() if oid)

    def show(name, version, **options):
        repo, oids = fetch(name, version, **options)
        tips = [peel_sha(repo.object_store, oid)[1].id for oid in oids]
        commits = {"tips": [tip.decode() for tip in tips], "boundary": {oid.decode() for oid in repo.get_shallow()}}
        show_cut(f"{name} {options}", **commits, parents_of=lambda oid: [parent.decode() for parent in repo[oid.encode()].parents])

    for version in (0, 2):
        for depth in (1, 3, 8, INFINITE):
            show(f"shallow{version}", version, depth=depth)
        show(f"since{version}", version, shallow_since=since)
        show(f"excluded{version}", version, shallow_exclude=["refs/tags/light"])
    # It filters over v2 alone.
    for spec in ("blob:none", "tree:0", "blob:limit=300"):
        for depth in (None, 2):
            repo, _ = fetch(f"{spec} {depth}", 2, filter_spec=spec.encode(), depth=depth)
            print(spec, depth, *sorted(oid.decode() for oid in repo.object_store))


def run_gitoxide(url, directory):
    # All that the package does over the network.
    import_module("gitpure").Repo.clone_from(url, directory, bare=True)


RUNS = {
    "pygit2": run_pygit2,
    "pygit2-cuts": run_pygit2_cuts,
    "dulwich": run_dulwich,
    "dulwich-cuts": run_dulwich_cuts,
    "gitoxide": run_gitoxide,
}

if __name__ == "__main__":
    RUNS[sys.argv[1]](*sys.argv[2:])
