"""The inspector: pages that show what agents did, in a browser.

Pages are operations of the server that answer with HTML: their parameters are checked, and tokens
and prefixes hold, as for the API. They read a store through `views` and the sync API, in a thread.
What a state holds is hostile: it reaches a page only through `views.page` or an escaping template,
and the Content-Security-Policy allows no script, style or image but those of the server.
"""
