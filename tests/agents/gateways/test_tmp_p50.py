import statistics, time, asyncio
import httpx2, pytest
from agents.gateways import mcp_calls, mcp_upstream, mcp_gateway
from tests.agents.gateways.mcp_support import call_body
from tests.agents.gateways.test_mcp_calls import MODERN, MODERN_META
pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

def test_p50(bench, monkeypatch):
    t={"admit":[], "call":[], "answer":[], "args":[], "session":[]}
    def wrap(obj, name, key):
        orig=getattr(obj,name)
        async def w(*a,**k):
            s=time.perf_counter()
            try: return await orig(*a,**k)
            finally: t[key].append((time.perf_counter()-s)*1e3)
        monkeypatch.setattr(obj,name,w)
    wrap(mcp_calls,"admit","admit"); wrap(mcp_upstream.UpstreamSession,"call","call"); wrap(mcp_gateway,"call_tool","answer"); wrap(mcp_calls,"check_arguments","args")
    wrap(mcp_calls._Call,"_session","session")
    body = call_body("shop__status", {"order": 7}, **MODERN_META)
    h = {**bench.world.authorization(), "accept": "application/json", **MODERN}
    with httpx2.Client(timeout=30) as http:
        for _ in range(20): http.post(bench.gateway.endpoint, json=body, headers=h)
        times=[]
        for v in t.values(): v.clear()
        for _ in range(200):
            s=time.perf_counter(); r=http.post(bench.gateway.endpoint, json=body, headers=h); times.append((time.perf_counter()-s)*1e3)
    print("total", round(statistics.median(times),2), {k: round(statistics.median(v),2) for k,v in t.items()})
    from agents.writer import get_writer
    async def hop():
        s=time.perf_counter()
        await get_writer().run(lambda c: c.execute("SELECT 1"))
        return (time.perf_counter()-s)*1e3
    print("bare hop", round(statistics.median([bench.gateway.run(hop) for _ in range(50)]),2))
