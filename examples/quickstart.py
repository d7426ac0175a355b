"""A session from its first message to its end, without an event loop.

    python examples/quickstart.py [URL]

Without a URL it uses the store of your configuration: HOLDFAST_URL, else a file in your data folder.
"""

import sys

from holdfast import sync


def main(url: str | None = None) -> None:
    with sync.connect(url) as hf:
        session = hf.create(agent="travel-planner", purpose="weekend in Genoa", parent=None)
        print(f"created    {session.id}")

        hf.append(session.id, "Find a hotel near the aquarium")
        hf.update(session.id, phase="planning", metadata={"city": "Genoa"})
        hf.context.put(session.id, "preference", "quiet street", ttl=3600)
        hf.suspend(session.id, checkpoint={"shortlist": ["Aurora", "Porto"]}, reason="the user is at lunch")
        print(f"suspended  in phase {hf.get(session.id).phase}")

        verdict = hf.should_resume(session.id)
        print(f"resumable  {verdict.decision} ({verdict.reason})")

        back = hf.resume(session.id)
        print(f"resumed    with {back.checkpoint}, {back.context} and {len(back.messages)} message")
        token = back.hold.token
        hf.append(session.id, {"role": "assistant", "content": "Hotel Aurora, two nights."}, token=token)
        hf.finalize(session.id, "completed", summary="Booked Hotel Aurora", token=token)

        for entry in hf.log(session.id):
            print(f"  {entry.number:>2}  {entry.kind:<10}  {entry.text or entry.data}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
