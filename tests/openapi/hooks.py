"""What Schemathesis is told beside the description: who is signed in, what there is in the server, and what is not done to itself."""

import http.client
import os
import urllib.parse

import schemathesis

# The token is another agent's than that of the cookie: of many sign-ins of an agent the first ones end.
SERVER, TOKEN, COOKIE = os.environ["SERVER"], os.environ["TOKEN"], os.environ["COOKIE"]
TASKS = os.environ["TASKS"].split()


def sign_in():
    """The name and the secret of a new sign-in."""
    connection = http.client.HTTPConnection(SERVER, timeout=60)
    form = urllib.parse.urlencode({"token": TOKEN})
    connection.request("POST", "/sign-in", form, {"content-type": "application/x-www-form-urlencoded"})
    return connection.getresponse().headers["set-cookie"].split(";")[0].split("=", 1)


@schemathesis.auth()
class SignIn:
    def get(self, case, context):
        return COOKIE.split("=", 1)

    def set(self, case, data, context):
        # Whoever signs out does it with a sign-in that nobody else uses.
        name, secret = sign_in() if case.path == "/sign-out" else data
        case.cookies[name] = secret


@schemathesis.hook
def before_call(context, case, kwargs):
    # What a redirect leads to is an operation of its own.
    kwargs["allow_redirects"] = False


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    # Half of the tasks are there: a made-up id never is.
    if path_parameters and isinstance(found := path_parameters.get("id"), str) and len(found) % 2:
        path_parameters["id"] = TASKS[len(found) % len(TASKS)]
    return path_parameters


@schemathesis.hook
def map_body(context, body):
    # The same for an agent to hand out work to, and for the token.
    if isinstance(body, dict):
        if "agent" in body and "title" in body and len(str(body["title"])) % 2:
            body |= {"agent": "worker", "queue": "true"}
        if "token" in body and len(str(body["token"])) % 2:
            body["token"] = TOKEN
    return body
