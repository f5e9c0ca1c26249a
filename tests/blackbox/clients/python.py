"""Drives another implementation of Git through what its users do: python.py pygit2|dulwich <url>, python.py gitoxide <url>
<directory>.

Prints refs and oids; what it prints must not depend on the server. Times and names are fixed, so oids are too.
"""

import sys
from importlib import import_module

TIME = 1700000000


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


def run_gitoxide(url, directory):
    # All that the package does over the network.
    import_module("gitpure").Repo.clone_from(url, directory, bare=True)


if __name__ == "__main__":
    {"pygit2": run_pygit2, "dulwich": run_dulwich, "gitoxide": run_gitoxide}[sys.argv[1]](*sys.argv[2:])
