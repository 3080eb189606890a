"""What Schemathesis is told beside the description: who is signed in, what there is in the server, and what is not done to itself."""

import http.client
import json
import os
import urllib.parse
import zlib

import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection

# The token is another agent's than that of the cookie: of many sign-ins of an agent the first ones end.
SERVER, TOKEN, COOKIE = os.environ["SERVER"], os.environ["TOKEN"], os.environ["COOKIE"]
NAME, SECRET = COOKIE.split("=", 1)
SEEDED = json.loads(os.environ["SEEDED"])
# These end the sign-in that they come with.
ENDING = {("POST", "/sign-in"), ("POST", "/sign-out")}


def sign_in():
    """The name and the secret of a new sign-in."""
    connection = http.client.HTTPConnection(SERVER, timeout=60)
    form = urllib.parse.urlencode({"token": TOKEN})
    connection.request("POST", "/sign-in", form, {"content-type": "application/x-www-form-urlencoded"})
    return connection.getresponse().headers["set-cookie"].split(";")[0].split("=", 1)


@schemathesis.auth().apply_to(path_regex="^/grid/")
class Bearer:
    def get(self, case, context):
        return TOKEN

    def set(self, case, data, context):
        case.headers["authorization"] = f"Bearer {data}"


@schemathesis.auth().skip_for(path_regex="^/grid/")
class SignIn:
    def get(self, case, context):
        return NAME, SECRET

    def set(self, case, data, context):
        # Whoever ends a sign-in does it with one that nobody else uses.
        name, secret = sign_in() if (case.method, case.path) in ENDING else data
        case.cookies[name] = secret


@schemathesis.hook
def before_call(context, case, kwargs):
    # What a redirect leads to is an operation of its own.
    kwargs["allow_redirects"] = False
    # Made-up ids and names do not exist, so three of four valid requests are changed to be about something that does: one of them has only
    # the fields that it needs, the others keep what was made up as well.
    chosen = zlib.crc32(repr((case.path_parameters, case.query, case.body)).encode())
    if chosen % 4:
        be_about(case, chosen // 4, plainly=chosen % 4 == 1)


def be_about(case, chosen, plainly):
    """Put in what exists, wherever the request is valid."""

    def one_of(things):
        return things[chosen % len(things)]

    def wrong(location):
        return case.meta is not None and case.meta.is_negative_at(location)

    tasks = SEEDED["tasks"]
    if case.path_parameters and not wrong(ParameterLocation.PATH):
        if "id" in case.path_parameters:
            every = [task for each in tasks.values() for task in each]
            case.path_parameters["id"] = one_of(tasks.get(case.path, every))
        if "node" in case.path_parameters:
            # What is about an agent is for itself.
            case.path_parameters["node"] = "other"
        if "name" in case.path_parameters:
            case.path_parameters["name"] = one_of(SEEDED["assets"])
    if not isinstance(case.body, dict) or wrong(ParameterLocation.BODY):
        return
    # The fields that name what exists, and the others that the form needs.
    about, said = {
        "/grid/nodes": lambda: ({}, {"name": "Other"}),
        "/grid/nodes/{node}": lambda: ({}, {"name": "Other"}),
        "/grid/nodes/{node}/status": lambda: ({}, {"status": "busy"}),
        "/grid/search": lambda: ({}, {"query": "other"}),
        "/sign-in": lambda: ({"token": TOKEN}, {}),
        "/sign-ins/end": lambda: ({"name": one_of(SEEDED["sign_ins"])}, {}),
        "/delegate": lambda: ({"agent": "worker", "queue": "true"}, {"title": "words"}),
        "/bulk": lambda: ({"id": tasks["/bulk"]}, {"act": "pause", "sure": "true"}),
        "/tasks/{id}/answer": lambda: ({"question": "how"}, {"answer": "well"}),
        "/tasks/{id}/decide": lambda: ({"proposal": SEEDED["proposals"].get(case.path_parameters["id"], "2")}, {"do": "approve"}),
        "/tasks/{id}/offer": lambda: ({}, {"do": "accept"}),
        "/tasks/{id}/hand-on": lambda: ({"to": "other"}, {}),
        "/tasks/{id}/commit": lambda: ({}, {"do": "complete"}),
        "/tasks/{id}/cancel": lambda: ({}, {"sure": "true"}),
        "/tasks/{id}/steer": lambda: ({}, {"text": "left"}),
        "/tasks/{id}/say": lambda: ({}, {"text": "hello"}),
    }.get(case.path, lambda: ({}, {}))()
    case.body = about | said if plainly else case.body | about
    if case.path.startswith("/grid/") and not plainly:
        # A key has to have signed the request that names it.
        case.body.pop("publicKey", None)


def leads_to_sign_in(response):
    return any(to.startswith("/sign-in?next=") for to in response.headers.get("location", []))


@schemathesis.check
def whoever_is_signed_in_stays_so(context, response, case):
    signed_in = (case.cookies or {}).get(NAME) == SECRET
    assert not (signed_in and leads_to_sign_in(response)), "asked to sign in, though signed in"


@schemathesis.check
def what_is_not_as_described_is_refused(context, response, case):
    # The same as the check of Schemathesis, for which a way to the page to sign in at is no refusal.
    if not leads_to_sign_in(response):
        negative_data_rejection(context, response, case)
